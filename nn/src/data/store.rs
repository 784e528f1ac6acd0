//! Samples stored outside memory: read on demand, and only the requested elements.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use unisono::Result;

use super::Inputs;

/// A backing store of samples, such as a file.
///
/// ```
/// use std::ops::Range;
/// use unisono_nn::{Inputs, Split, Store, Stored, Targets};
///
/// /// Sample 7 is 7, 8, 9 and so on.
/// #[derive(Debug)]
/// struct Counting;
///
/// impl Store for Counting {
///     fn read(&self, sample: usize, places: &[Range<usize>], values: &mut [f64]) -> unisono::Result<()> {
///         let places = places.iter().cloned().flatten();
///         values.iter_mut().zip(places).for_each(|(value, place)| *value = (sample + place) as f64);
///         Ok(())
///     }
/// }
///
/// let stored = Stored::new(Counting, 100, 4);
/// let split = Split { count: 100, inputs: Inputs::Stored(stored), targets: Targets::Unknown };
/// let mut inputs = [0.0_f32; 4];
/// split.part(&[0, 3]).fill(&[7, 20], &mut inputs, &mut [])?;
/// assert_eq!(inputs, [7.0, 10.0, 20.0, 23.0]);
/// # Ok::<(), unisono::Error>(())
/// ```
pub trait Store: Debug + Send + Sync {
    /// Reads the elements of a sample in these index ranges, consecutively.
    fn read(&self, sample: usize, places: &[Range<usize>], values: &mut [f64]) -> Result<()>;

    /// Checks some samples for damage before training. The ranks of a run share this work.
    fn check(&self, _samples: &[usize]) -> Result<()> {
        Ok(())
    }

    /// The elements of these samples in these index ranges, if holding them in memory is better than reading them on demand.
    /// By default, samples stay in the store.
    fn keep(&self, _samples: &[usize], _places: &[Range<usize>]) -> Result<Option<Inputs>> {
        Ok(None)
    }
}

/// Some samples of a store, and some elements of each.
#[derive(Debug, Clone)]
pub struct Stored {
    store: Arc<dyn Store>,
    samples: Arc<[usize]>,
    places: Arc<[Range<usize>]>,
}

impl PartialEq for Stored {
    fn eq(&self, other: &Stored) -> bool {
        Arc::ptr_eq(&self.store, &other.store) && self.samples == other.samples && self.places == other.places
    }
}

impl Stored {
    /// All samples of a store, given their number and the number of elements per sample.
    pub fn new(store: impl Store + 'static, count: usize, width: usize) -> Stored {
        let whole = 0..width;
        Stored { store: Arc::new(store), samples: (0..count).collect(), places: [whole].into() }
    }

    /// Reads a sample.
    pub(super) fn read(&self, sample: usize, values: &mut [f64]) -> Result<()> {
        self.store.read(self.samples[sample], &self.places, values)
    }

    pub(super) fn check(&self, samples: Range<usize>) -> Result<()> {
        self.store.check(&self.samples[samples])
    }

    pub(super) fn keep(&self) -> Result<Option<Inputs>> {
        self.store.keep(&self.samples, &self.places)
    }

    pub(super) fn choose(&self, chosen: &[usize]) -> Stored {
        Stored { samples: chosen.iter().map(|sample| self.samples[*sample]).collect(), ..self.clone() }
    }

    pub(super) fn part(&self, places: &[usize]) -> Stored {
        let own: Vec<usize> = self.places.iter().cloned().flatten().collect();
        let mut runs: Vec<Range<usize>> = Vec::new();
        for place in places.iter().map(|place| own[*place]) {
            match runs.last_mut() {
                Some(run) if run.end == place => run.end += 1,
                _ => runs.push(place..place + 1),
            }
        }
        Stored { places: runs.into(), ..self.clone() }
    }
}
