//! A plan: what a rank sends, receives, copies and fills so that everybody has the region that its outputs need.
//!
//! Windows, boundaries and partitions act on each dimension by itself. So every dimension of a needed region is cut into
//! segments of one origin, and every product of segments is a box that one rank has.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::box_pair::{BoxPair, Line};
use super::segments::{SegmentOrigin, Segment, cut};
use super::{Edges, Layout, Region, Window};
use crate::error::{Error, Result};

/// The boxes that travel between this rank and another.
#[derive(Debug, Clone, Default)]
pub(crate) struct HaloParcel {
    pub peer: usize,
    /// Elements of all boxes of one field.
    pub elements: usize,
    pub boxes: Vec<BoxPair>,
}

/// The same moves for arrays that lie in their padded form already.
#[derive(Debug, Clone, Default)]
pub(crate) struct InPlaceMoves {
    /// Which of the plan's local copies leaves everything where it is.
    pub identity: Option<usize>,
    pub local: Vec<BoxPair>,
    pub sends: Vec<HaloParcel>,
}

/// Who has what before and after, and the moves of one rank. A plan is made once, without a message, and used again and
/// again; [`Exchange`](super::Exchange) carries it out.
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
    /// Only where a rank needs all that it has.
    pub(super) in_place: Option<InPlaceMoves>,
}

/// What all ranks of a plan have in common.
struct PlanSpec<'a> {
    source: &'a Layout,
    target: &'a Layout,
    windows: &'a [Window],
    edges: &'a [Edges],
    /// The rank that has all of the source, if it is not divided between all.
    source_rank: Option<usize>,
    /// The rank that needs the target, if not all do.
    target_rank: Option<usize>,
}

impl Plan {
    /// What the outputs of windows need: `windows` and `edges` have one entry for each dimension, and the outputs are
    /// divided as evenly as possible unless `outputs` says otherwise.
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

    /// The same array, divided in another way.
    pub fn repartition(from: &Layout, to: &Layout, rank: usize) -> Result<Plan> {
        if from.shape() != to.shape() || from.grid() != to.grid() {
            let expected = format!("the shape {:?} on the grid {}", from.shape(), from.grid());
            let received = format!("{:?} on {}", to.shape(), to.grid());
            return Err(Error::usage("repartition", expected, received, "use two layouts of one array"));
        }
        Plan::unchanged(from, to, None, None, rank)
    }

    /// One rank has the whole array; everybody gets a part.
    pub fn scatter(layout: &Layout, root: usize, rank: usize) -> Result<Plan> {
        Plan::unchanged(&layout.undivided(), layout, Some(root), None, rank)
    }

    /// The parts come together at one rank, or without a root at every rank.
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
        Plan::make(&PlanSpec { source, target, windows: &windows, edges: &edges, source_rank, target_rank }, rank)
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
            edges.check(dimension, length, all.start < 0 || all.end > length as i64)?;
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

    /// Cuts what this rank needs, and notes where each box comes from.
    fn receive(&mut self, spec: &PlanSpec) {
        let (shape, insets) = (self.needed.shape(), self.inset());
        for choice in products(&spec.cuts(self.rank)) {
            let extents: Vec<usize> = choice.iter().map(|segment| segment.length).collect();
            let target: Vec<Line> = choice.iter().map(|segment| Line::from(segment.at)).collect();
            // Where several dimensions are outside, the last one says what is there, as if they were padded in order.
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

    /// Does the same for every other rank, and notes what it has from this one, in the same order.
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

    /// Where this rank's part begins in the padded array, if all of it is there.
    fn inset(&self) -> Option<Vec<usize>> {
        let inside = self.own.intersect(&self.needed) == self.own;
        let starts = self.own.start().into_iter().zip(self.needed.start());
        inside.then(|| starts.map(|(own, needed)| (own - needed) as usize).collect())
    }

    /// The local copy with which sums may begin, because it has every element of the part: the one that leaves all where it
    /// is, or else the first.
    pub(super) fn first_of_sums(&self) -> Option<usize> {
        let (elements, identity) = (self.own.elements(), self.in_place.as_ref().and_then(|in_place| in_place.identity));
        identity.into_iter().chain(0..self.local.len()).find(|&at| self.local[at].covers(elements))
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Where the inputs are.
    pub fn inputs(&self) -> &Layout {
        &self.source
    }

    /// Where the outputs are.
    pub fn outputs(&self) -> &Layout {
        &self.target
    }

    /// The part of the inputs that this rank has.
    pub fn own(&self) -> &Region {
        &self.own
    }

    /// The region that this rank's outputs need; it may reach outside the array, where the boundary is.
    pub fn needed(&self) -> &Region {
        &self.needed
    }

    /// The ranks that send to this one, and how many elements of one field.
    pub fn sources(&self) -> impl Iterator<Item = (usize, usize)> {
        self.receives.iter().map(|parcel| (parcel.peer, parcel.elements))
    }

    /// The ranks that this one sends to, and how many elements of one field.
    pub fn destinations(&self) -> impl Iterator<Item = (usize, usize)> {
        self.sends.iter().map(|parcel| (parcel.peer, parcel.elements))
    }

    /// The same number on all ranks that have made the same plan.
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

/// Lines of a part as lines of the padded array that it lies in.
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

    /// The segments of each dimension of what a rank needs.
    fn cuts(&self, rank: usize) -> Vec<Vec<Segment>> {
        let needed = self.needed(rank);
        let dimensions = 0..self.windows.len();
        dimensions.map(|d| cut(needed.range(d), self.source, d, &self.edges[d])).collect()
    }

    /// Those of them that one rank has.
    fn cuts_from(&self, rank: usize, source_rank: usize) -> Vec<Vec<Segment>> {
        let (there, here) = (self.source.grid().coordinates(source_rank), self.source.grid().coordinates(rank));
        let serves = match self.source_rank {
            Some(only) => only == source_rank,
            // Along axes that divide nothing, everybody is served by its own replica.
            None => (0..there.len()).all(|axis| {
                there[axis] == here[axis]
                    || (0..self.windows.len())
                        .any(|d| self.source.split(d).is_some_and(|split| split.0 == axis))
            }),
        };
        if !serves {
            return vec![Vec::new(); self.windows.len()];
        }
        let has = |dimension: usize, segment: &Segment| matches!(segment.origin, SegmentOrigin::Part(part, _) if part == self.source.part(dimension, &there));
        let mut cuts = self.cuts(rank);
        cuts.iter_mut().enumerate().for_each(|(d, segments)| segments.retain(|segment| has(d, segment)));
        cuts
    }

    /// The rank that a box without constants comes from, and where it is in that rank's part.
    fn origin(&self, choice: &[&Segment], receiver: usize) -> (usize, Vec<Line>) {
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
        // Numbers with a fraction cannot be hashed, but their words can.
        self.edges.iter().for_each(|edges| format!("{edges:?}").hash(&mut hasher));
        hasher.finish()
    }
}

fn nothing(dimensions: usize) -> Region {
    Region::new(&vec![0..0; dimensions])
}

/// Every choice of one segment from each dimension, the last dimension fastest.
fn products(cuts: &[Vec<Segment>]) -> Vec<Vec<&Segment>> {
    cuts.iter().fold(vec![Vec::new()], |choices, segments| {
        let longer = |choice: Vec<_>| {
            segments.iter().map(move |segment| choice.iter().copied().chain([segment]).collect::<Vec<_>>())
        };
        choices.into_iter().flat_map(longer).collect()
    })
}
