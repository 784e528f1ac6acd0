//! Models: layers that are trained together, and the phases of training.

mod network;
mod pretrain;
mod reconstruct;

pub use network::Network;
pub use pretrain::{PretrainCost, Pretraining};

/// The phases of a run, in order.
///
/// ```
/// use unisono_nn::{Phase, Phases};
/// let phases = Phases::new(vec![(Phase::Pretrain { group: 0 }, 5), (Phase::Last, 1), (Phase::Full, 2)]);
/// assert_eq!((phases.epochs(), phases.at(4)), (8, Some(Phase::Pretrain { group: 0 })));
/// assert_eq!((phases.at(7), phases.at(8)), (Some(Phase::Full), None));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phases(Vec<(Phase, usize)>);

impl Phases {
    /// Creates phases, each with its number of epochs.
    pub fn new(phases: Vec<(Phase, usize)>) -> Phases {
        Phases(phases)
    }

    /// The total number of epochs.
    pub fn epochs(&self) -> usize {
        self.0.iter().map(|(_, epochs)| epochs).sum()
    }

    /// The phase of an epoch, counted from 0; `None` beyond the last.
    pub fn at(&self, epoch: usize) -> Option<Phase> {
        self.find(epoch).map(|(phase, _)| phase)
    }

    /// The phase of the last epoch; `None` if there are no epochs.
    pub(crate) fn last(&self) -> Option<Phase> {
        self.at(self.epochs().checked_sub(1)?)
    }

    /// The phase of an epoch, and the epoch number for its schedules: each group of layers pretrains with a schedule of its
    /// own, and all other phases share one.
    pub(crate) fn find(&self, epoch: usize) -> Option<(Phase, usize)> {
        let (mut inside, mut counted) = (epoch, 0);
        for (phase, epochs) in &self.0 {
            if inside < *epochs {
                let before = if phase.pretrains() { 0 } else { counted };
                return Some((*phase, before + inside));
            }
            inside -= epochs;
            counted += if phase.pretrains() { 0 } else { *epochs };
        }
        None
    }
}

/// What an epoch trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// One group of layers of a sparse autoencoder, to reconstruct its own input.
    Pretrain {
        /// The index of the group, from the input.
        group: usize,
    },
    /// The last layer with weights; the others are frozen.
    Last,
    /// All layers.
    Full,
}

impl Phase {
    fn pretrains(self) -> bool {
        matches!(self, Phase::Pretrain { .. })
    }

    /// Its name in metrics.
    pub fn name(self) -> String {
        match self {
            Phase::Pretrain { group } => format!("pretrain{group}"),
            Phase::Last => "last".into(),
            Phase::Full => "full".into(),
        }
    }
}
