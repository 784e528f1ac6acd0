//! Models: layers that learn together, and the phases that they learn in.

mod network;
mod pretrain;
mod reconstruct;

pub use network::Network;
pub use pretrain::{PretrainCost, Pretraining};

/// The phases of a run, one after the other.
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
    /// Each with how many epochs it has.
    pub fn new(phases: Vec<(Phase, usize)>) -> Phases {
        Phases(phases)
    }

    /// How many epochs all have.
    pub fn epochs(&self) -> usize {
        self.0.iter().map(|(_, epochs)| epochs).sum()
    }

    /// What an epoch trains, the first being 0; nothing beyond the last.
    pub fn at(&self, epoch: usize) -> Option<Phase> {
        self.find(epoch).map(|(phase, _)| phase)
    }

    /// What the last epoch trains; nothing where there are no epochs.
    pub(crate) fn last(&self) -> Option<Phase> {
        self.at(self.epochs().checked_sub(1)?)
    }

    /// What an epoch trains, with the epochs before it that its rates count: each group of layers pretrains with rates of its own,
    /// and the rest counts together.
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
        /// Which group, from the bottom.
        group: usize,
    },
    /// The last layer with weights, the others as they are.
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
