//! A plan: what a rank sends, receives, copies and fills so that every rank gets the region that its outputs need.
//!
//! Windows, boundaries and partitions act on each dimension independently. So every dimension of a needed region is cut into
//! segments with a single origin, and every product of segments is a box that a single rank has.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::box_pair::{BoxPair, Line};
use super::segments::{AxisSegment, SegmentOrigin, cut};
use super::{Edges, Layout, Region, Window};
use crate::error::{Error, Result};

/// The boxes that are exchanged between this rank and a peer, in one direction.
#[derive(Debug, Clone, Default)]
pub(crate) struct HaloParcel {
    pub peer: usize,
    /// Elements of all boxes in one field.
    pub elements: usize,
    pub boxes: Vec<BoxPair>,
}

/// The same moves for arrays that are already in their padded form.
#[derive(Debug, Clone, Default)]
pub(crate) struct InPlaceMoves {
    /// Index of the plan's local copy whose source and target coincide in the padded array.
    pub identity: Option<usize>,
    pub local: Vec<BoxPair>,
    pub sends: Vec<HaloParcel>,
}

/// The layouts before and after, and the moves of one rank. A plan is computed once, without communication, and used
/// repeatedly; [`Exchange`](super::Exchange) executes it.
///
/// ```
/// use unisono::halo::{Edges, Grid, Layout, Plan, Window};
/// let grid = Grid::parse("w=2", 2)?;
/// let input = Layout::new(&grid, &[28], &[("w", 0)])?;
/// let windows = [Window { kernel: 5, ..Window::IDENTITY }];
/// let plan = Plan::window(&input, &windows, &[Edges::default()], None, 1)?;
/// assert_eq!(plan.own().to_string(), "[14:28]");
/// assert_eq!(plan.needed().to_string(), "[12:28]"); // two from the west
/// assert_eq!(plan.outputs().region(1).to_string(), "[12:24]");
/// # Ok::<(), unisono::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Plan {
    rank: usize,
    source: Layout,
    target: Layout,
    own: Region,
    needed: Region,
    fingerprint: u64,
    pub(super) local: Vec<BoxPair>,
    pub(super) fills: Vec<(BoxPair, f64)>,
    pub(super) sends: Vec<HaloParcel>,
    pub(super) receives: Vec<HaloParcel>,
    /// Present only if the rank needs all of its own part.
    pub(super) in_place: Option<InPlaceMoves>,
}

/// The inputs of a plan, equal on all ranks.
struct PlanSpec<'a> {
    source: &'a Layout,
    target: &'a Layout,
    windows: &'a [Window],
    edges: &'a [Edges],
    /// The rank that has all of the source, if it is not divided between all ranks.
    source_rank: Option<usize>,
    /// The rank that needs the target, if not all ranks do.
    target_rank: Option<usize>,
}

impl Plan {
    /// The plan for what the outputs of windows need: `windows` and `edges` have one entry for each dimension, and the
    /// outputs are divided as evenly as possible unless `outputs` is given.
    pub fn window(
        source: &Layout,
        windows: &[Window],
        edges: &[Edges],
        outputs: Option<&Layout>,
        rank: usize,
    ) -> Result<Plan> {
        let balanced = source.outputs(windows)?;
        let target = outputs.unwrap_or(&balanced);
        if target.shape() != balanced.shape() || target.grid() != balanced.grid() {
            let expected =
                format!("outputs of the shape {:?} on the grid {}", balanced.shape(), balanced.grid());
            let received = format!("{:?} on {}", target.shape(), target.grid());
            return Err(Error::usage("window", expected, received, "take the layout from outputs()"));
        }
        if edges.len() != windows.len() {
            let expected = format!("{} boundaries, one for each dimension", windows.len());
            return Err(Error::usage(
                "window",
                expected,
                edges.len().to_string(),
                "use the default for the rest",
            ));
        }
        Plan::make(&PlanSpec { source, target, windows, edges, source_rank: None, target_rank: None }, rank)
    }

    /// Repartitions an array from one layout to another.
    pub fn repartition(from: &Layout, to: &Layout, rank: usize) -> Result<Plan> {
        if from.shape() != to.shape() || from.grid() != to.grid() {
            let expected = format!("the shape {:?} on the grid {}", from.shape(), from.grid());
            let received = format!("{:?} on {}", to.shape(), to.grid());
            return Err(Error::usage("repartition", expected, received, "use two layouts of one array"));
        }
        Plan::unchanged(from, to, None, None, rank)
    }

    /// Scatters an array that one rank has: every rank gets its part.
    pub fn scatter(layout: &Layout, root: usize, rank: usize) -> Result<Plan> {
        Plan::unchanged(&layout.undivided(), layout, Some(root), None, rank)
    }

    /// Gathers the parts at one rank, or at every rank if there is no root.
    pub fn gather(layout: &Layout, root: Option<usize>, rank: usize) -> Result<Plan> {
        Plan::unchanged(layout, &layout.undivided(), None, root, rank)
    }

    fn unchanged(
        source: &Layout,
        target: &Layout,
        source_rank: Option<usize>,
        target_rank: Option<usize>,
        rank: usize,
    ) -> Result<Plan> {
        let windows = vec![Window::IDENTITY; source.shape().len()];
        let edges = vec![Edges::default(); source.shape().len()];
        Plan::make(
            &PlanSpec { source, target, windows: &windows, edges: &edges, source_rank, target_rank },
            rank,
        )
    }

    fn make(spec: &PlanSpec, rank: usize) -> Result<Plan> {
        let ranks = spec.source.grid().size();
        if rank >= ranks || spec.source_rank.or(spec.target_rank).is_some_and(|root| root >= ranks) {
            let received = format!("rank {rank}, root {:?}", spec.source_rank.or(spec.target_rank));
            return Err(Error::usage("plan", format!("ranks below {ranks}"), received, "ranks count from 0"));
        }
        let needed = spec.needed(rank);
        for (dimension, edges) in spec.edges.iter().enumerate() {
            let length = spec.source.shape()[dimension];
            let all = spec.windows[dimension].needed(0..spec.target.shape()[dimension] as i64);
            edges.validate(dimension, length, all.start < 0 || all.end > length as i64)?;
        }
        let mut plan = Plan {
            rank,
            source: spec.source.clone(),
            target: spec.target.clone(),
            own: spec.own(rank),
            needed,
            fingerprint: spec.fingerprint(),
            local: Vec::new(),
            fills: Vec::new(),
            sends: Vec::new(),
            receives: Vec::new(),
            in_place: None,
        };
        plan.in_place = plan.inset().map(|_| InPlaceMoves::default());
        plan.receive(spec);
        plan.send(spec);
        Ok(plan)
    }

    /// Cuts the region that this rank needs, and records the origin of each box.
    fn receive(&mut self, spec: &PlanSpec) {
        let (shape, insets) = (self.needed.shape(), self.inset());
        for choice in products(&spec.cuts(self.rank)) {
            let extents: Vec<usize> = choice.iter().map(|segment| segment.length).collect();
            let target: Vec<Line> = choice.iter().map(|segment| Line::from(segment.at)).collect();
            // If several dimensions are outside, the last one determines the value, as if they were padded in order.
            let constant = choice.iter().rev().find_map(|segment| match segment.origin {
                SegmentOrigin::Constant(value) => Some(value),
                SegmentOrigin::Part(..) => None,
            });
            if let Some(value) = constant {
                self.fills.push((BoxPair::of_one_value(&extents, (&shape, &target)), value));
                continue;
            }
            let (peer, lines) = spec.origin(&choice, self.rank);
            if peer == self.rank {
                let own = self.own.shape();
                self.local.push(BoxPair::new(&extents, (&own, &lines), (&shape, &target)));
                if let (Some(lines), Some(in_place)) = (inset(&insets, &lines), &mut self.in_place) {
                    match lines == target {
                        true => in_place.identity = Some(self.local.len() - 1),
                        false => {
                            in_place.local.push(BoxPair::new(&extents, (&shape, &lines), (&shape, &target)));
                        }
                    }
                }
            } else {
                let parcel = parcel_of(&mut self.receives, peer);
                let pair = BoxPair::in_message(&extents, (&shape, &target), parcel.elements);
                parcel.push(pair);
            }
        }
        self.receives.sort_by_key(|parcel| parcel.peer);
    }

    /// Does the same for every other rank, and records the boxes that it gets from this one, in the same order.
    fn send(&mut self, spec: &PlanSpec) {
        let (own, padded, insets) = (self.own.shape(), self.needed.shape(), self.inset());
        for peer in (0..spec.source.grid().size()).filter(|&peer| peer != self.rank) {
            for choice in products(&spec.cuts_from(peer, self.rank)) {
                let extents: Vec<usize> = choice.iter().map(|segment| segment.length).collect();
                let (_, lines) = spec.origin(&choice, peer);
                let parcel = parcel_of(&mut self.sends, peer);
                let pair = BoxPair::in_message(&extents, (&own, &lines), parcel.elements);
                parcel.push(pair);
                if let (Some(lines), Some(in_place)) = (inset(&insets, &lines), &mut self.in_place) {
                    let parcel = parcel_of(&mut in_place.sends, peer);
                    let pair = BoxPair::in_message(&extents, (&padded, &lines), parcel.elements);
                    parcel.push(pair);
                }
            }
        }
    }

    /// The offset of this rank's part in the padded array, if the padded array contains all of it.
    fn inset(&self) -> Option<Vec<usize>> {
        let inside = self.own.intersect(&self.needed) == self.own;
        let starts = self.own.start().into_iter().zip(self.needed.start());
        inside.then(|| starts.map(|(own, needed)| (own - needed) as usize).collect())
    }

    /// The local copy that initialises the sums, because it covers every element of the part: preferably the one whose
    /// source and target coincide, else the first.
    pub(super) fn first_of_sums(&self) -> Option<usize> {
        let (elements, identity) =
            (self.own.elements(), self.in_place.as_ref().and_then(|in_place| in_place.identity));
        identity.into_iter().chain(0..self.local.len()).find(|&at| self.local[at].covers(elements))
    }

    /// The rank that the plan is for.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The layout of the inputs.
    pub fn inputs(&self) -> &Layout {
        &self.source
    }

    /// The layout of the outputs.
    pub fn outputs(&self) -> &Layout {
        &self.target
    }

    /// The region of the inputs that this rank has.
    pub fn own(&self) -> &Region {
        &self.own
    }

    /// The region that this rank's outputs need; it may extend beyond the array, into the boundary.
    pub fn needed(&self) -> &Region {
        &self.needed
    }

    /// The ranks that send to this one, and the number of elements per field.
    pub fn sources(&self) -> impl Iterator<Item = (usize, usize)> {
        self.receives.iter().map(|parcel| (parcel.peer, parcel.elements))
    }

    /// The ranks that this one sends to, and the number of elements per field.
    pub fn destinations(&self) -> impl Iterator<Item = (usize, usize)> {
        self.sends.iter().map(|parcel| (parcel.peer, parcel.elements))
    }

    /// A fingerprint that is equal on all ranks that have made the same plan.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

impl HaloParcel {
    fn push(&mut self, pair: BoxPair) {
        self.elements += pair.elements();
        self.boxes.push(pair);
    }
}

/// Converts lines of a part to lines of the padded array that contains it.
fn inset(insets: &Option<Vec<usize>>, lines: &[Line]) -> Option<Vec<Line>> {
    let moved = |(line, inset): (&Line, &usize)| Line { start: line.start + inset, ..*line };
    Some(lines.iter().zip(insets.as_ref()?).map(moved).collect())
}

fn parcel_of(parcels: &mut Vec<HaloParcel>, peer: usize) -> &mut HaloParcel {
    let index = parcels.iter().position(|parcel| parcel.peer == peer).unwrap_or_else(|| {
        parcels.push(HaloParcel { peer, ..HaloParcel::default() });
        parcels.len() - 1
    });
    &mut parcels[index]
}

impl PlanSpec<'_> {
    fn own(&self, rank: usize) -> Region {
        match self.source_rank {
            Some(source_rank) if source_rank != rank => nothing(self.source.shape().len()),
            _ => self.source.region(rank),
        }
    }

    fn needed(&self, rank: usize) -> Region {
        if self.target_rank.is_some_and(|target_rank| target_rank != rank) {
            return nothing(self.source.shape().len());
        }
        let outputs = self.target.region(rank);
        let ranges = self.windows.iter().enumerate();
        let ranges: Vec<_> =
            ranges.map(|(dimension, window)| window.needed(outputs.range(dimension))).collect();
        Region::new(&ranges)
    }

    /// The segments of each dimension of the region that a rank needs.
    fn cuts(&self, rank: usize) -> Vec<Vec<AxisSegment>> {
        let needed = self.needed(rank);
        let dimensions = 0..self.windows.len();
        dimensions.map(|d| cut(needed.range(d), self.source, d, &self.edges[d])).collect()
    }

    /// Those of these segments that `source_rank` has.
    fn cuts_from(&self, rank: usize, source_rank: usize) -> Vec<Vec<AxisSegment>> {
        let (there, here) =
            (self.source.grid().coordinates(source_rank), self.source.grid().coordinates(rank));
        let serves = match self.source_rank {
            Some(only) => only == source_rank,
            // Along axes that divide nothing, every rank is served by its own replica.
            None => (0..there.len()).all(|axis| {
                there[axis] == here[axis]
                    || (0..self.windows.len())
                        .any(|d| self.source.split(d).is_some_and(|split| split.0 == axis))
            }),
        };
        if !serves {
            return vec![Vec::new(); self.windows.len()];
        }
        let has = |dimension: usize, segment: &AxisSegment| matches!(segment.origin, SegmentOrigin::Part(part, _) if part == self.source.part(dimension, &there));
        let mut cuts = self.cuts(rank);
        cuts.iter_mut().enumerate().for_each(|(d, segments)| segments.retain(|segment| has(d, segment)));
        cuts
    }

    /// The rank that a box without constants comes from, and the position of the box in that rank's part.
    fn origin(&self, choice: &[&AxisSegment], receiver: usize) -> (usize, Vec<Line>) {
        let mut coordinates = self.source.grid().coordinates(receiver);
        let mut lines = Vec::with_capacity(choice.len());
        for (dimension, segment) in choice.iter().enumerate() {
            if let SegmentOrigin::Part(part, line) = &segment.origin {
                if let Some((axis, _)) = self.source.split(dimension) {
                    coordinates[axis] = *part;
                }
                lines.push(*line);
            }
        }
        (self.source_rank.unwrap_or_else(|| self.source.grid().rank(&coordinates)), lines)
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.source, self.target, self.windows, self.source_rank, self.target_rank).hash(&mut hasher);
        // Floats cannot be hashed, but their text can.
        self.edges.iter().for_each(|edges| format!("{edges:?}").hash(&mut hasher));
        hasher.finish()
    }
}

fn nothing(dimensions: usize) -> Region {
    Region::new(&vec![0..0; dimensions])
}

/// Every choice of one segment from each dimension, the last dimension fastest.
fn products(cuts: &[Vec<AxisSegment>]) -> Vec<Vec<&AxisSegment>> {
    cuts.iter().fold(vec![Vec::new()], |choices, segments| {
        let longer = |choice: Vec<_>| {
            segments.iter().map(move |segment| choice.iter().copied().chain([segment]).collect::<Vec<_>>())
        };
        choices.into_iter().flat_map(longer).collect()
    })
}
