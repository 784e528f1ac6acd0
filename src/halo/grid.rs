//! A grid: ranks arranged along named axes, such as `data=2, h=2, w=2`.

use std::fmt;

use crate::error::{Error, Result};

/// Ranks along named axes; the last axis is the fastest (row-major).
///
/// ```
/// use unisono::halo::Grid;
/// let grid = Grid::parse("data=2,h=-1,w=2", 8)?;
/// assert_eq!(grid.to_string(), "data=2,h=2,w=2");
/// assert_eq!(grid.coordinates(5), [1, 0, 1]);
/// assert_eq!(grid.rank(&[1, 0, 1]), 5);
/// assert_eq!(grid.along("w", 5)?, [4, 5]);
/// # Ok::<(), unisono::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Grid {
    axes: Vec<(String, usize)>,
}

impl Grid {
    /// A grid of `ranks` ranks. The size of one axis may be −1: it is then computed from the others.
    pub fn new(axes: &[(&str, i64)], ranks: usize) -> Result<Grid> {
        let wrong = |expected: &str, received: String, advice: &str| {
            Err(Error::usage("grid", expected, received, advice))
        };
        for (index, (name, size)) in axes.iter().enumerate() {
            if name.is_empty() || axes[..index].iter().any(|(other, _)| other == name) {
                return wrong("a name of its own for each axis", format!("{name:?}"), "rename one of them");
            }
            if *size < 1 && *size != -1 {
                let advice =
                    format!("give it a size, such as {name}=2, or {name}=-1 for all ranks that are left");
                return wrong("axes of 1 or more, or one of -1", format!("{name}={size}"), &advice);
            }
        }
        let rest = axes.iter().filter(|(_, size)| *size == -1).count();
        if axes.is_empty() || rest > 1 {
            let received = if axes.is_empty() { "no axis".into() } else { format!("{rest} axes of -1") };
            return wrong(
                "one axis or more, at most one of them -1",
                received,
                "say how many ranks each has",
            );
        }
        let known: usize =
            axes.iter().filter(|(_, size)| *size > 0).map(|(_, size)| *size as usize).product();
        let fits = if rest == 1 { known > 0 && ranks.is_multiple_of(known) } else { known == ranks };
        if !fits {
            let sizes: Vec<String> = axes.iter().map(|(name, size)| format!("{name}={size}")).collect();
            let expected = format!("axes whose sizes make {ranks}, the number of ranks");
            let received = format!("{}, which make {known}", sizes.join(", "));
            return wrong(
                &expected,
                received,
                "start as many ranks, or change an axis (-1 takes what is left)",
            );
        }
        let size = |size: i64| if size == -1 { ranks / known } else { size as usize };
        Ok(Grid { axes: axes.iter().map(|(name, given)| (name.to_string(), size(*given))).collect() })
    }

    /// Parses a grid from text such as `data=2,h=2,w=-1`.
    pub fn parse(text: &str, ranks: usize) -> Result<Grid> {
        let mut axes = Vec::new();
        for part in text.split(',') {
            let axis =
                part.split_once('=').and_then(|(name, size)| Some((name.trim(), size.trim().parse().ok()?)));
            let Some(axis) = axis else {
                let advice = "write it as data=2,h=2,w=-1";
                return Err(Error::usage(
                    "grid",
                    "a name and a number for each axis",
                    format!("{part:?}"),
                    advice,
                ));
            };
            axes.push(axis);
        }
        Grid::new(&axes, ranks)
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        self.axes.iter().map(|(_, size)| size).product()
    }

    /// The axes' names and sizes, in order.
    pub fn axes(&self) -> impl Iterator<Item = (&str, usize)> {
        self.axes.iter().map(|(name, size)| (name.as_str(), *size))
    }

    /// The index of the axis with this name.
    pub fn axis(&self, name: &str) -> Result<usize> {
        self.axes.iter().position(|(other, _)| other == name).ok_or_else(|| {
            let names: Vec<&str> = self.axes().map(|(name, _)| name).collect();
            Error::usage(
                "grid",
                format!("one of the axes {}", names.join(", ")),
                name,
                "use one of these names",
            )
        })
    }

    /// The number of ranks along an axis.
    pub fn extent(&self, axis: usize) -> usize {
        self.axes[axis].1
    }

    /// The coordinates of a rank.
    pub fn coordinates(&self, rank: usize) -> Vec<usize> {
        let mut rest = rank;
        let mut coordinates: Vec<usize> = self
            .axes
            .iter()
            .rev()
            .map(|(_, size)| {
                let coordinate = rest % size;
                rest /= size;
                coordinate
            })
            .collect();
        coordinates.reverse();
        coordinates
    }

    /// The rank at these coordinates.
    pub fn rank(&self, coordinates: &[usize]) -> usize {
        self.axes.iter().zip(coordinates).fold(0, |rank, ((_, size), coordinate)| rank * size + coordinate)
    }

    /// The ranks that differ from this one along one axis only, in order: the members of a subgroup.
    pub fn along(&self, name: &str, rank: usize) -> Result<Vec<usize>> {
        let axis = self.axis(name)?;
        let mut coordinates = self.coordinates(rank);
        let at = |coordinate| {
            coordinates[axis] = coordinate;
            self.rank(&coordinates)
        };
        Ok((0..self.extent(axis)).map(at).collect())
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axes: Vec<String> = self.axes().map(|(name, size)| format!("{name}={size}")).collect();
        f.write_str(&axes.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_coordinates_are_inverse() {
        let grid = Grid::new(&[("data", 2), ("h", 3), ("w", 4)], 24).unwrap();
        for rank in 0..24 {
            assert_eq!(grid.rank(&grid.coordinates(rank)), rank);
        }
        assert_eq!(grid.along("h", 7).unwrap(), [3, 7, 11]);
        assert!(grid.along("depth", 0).is_err());
    }

    #[test]
    fn a_grid_that_does_not_match_is_rejected_with_its_numbers() {
        for (axes, ranks) in
            [("h=2,w=2", 6), ("h=4,w=-1", 6), ("h=-1,w=-1", 4), ("h=0", 1), ("h=2,h=2", 4), ("h", 1)]
        {
            let error = Grid::parse(axes, ranks).unwrap_err();
            assert_eq!(error.kind(), crate::Kind::Usage, "{axes} on {ranks}: {error}");
        }
        let error = Grid::parse("h=2,w=2", 6).unwrap_err().to_string();
        assert!(error.contains("make 6") && error.contains("h=2, w=2"), "{error}");
    }
}
