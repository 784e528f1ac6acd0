//! Searches for the unit of a network that best detects a class, by the area under its ROC curve.
//!
//! Q. Le and others, "Building high-level features using large scale unsupervised learning", 2012, look for a unit that
//! responds to faces or to cats. The area under the receiver operating characteristic is the probability that the unit
//! responds more strongly to a sample of the class than to a sample of another class.

use std::fmt::Write;

/// The best unit for a class.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Spot {
    pub(super) class: usize,
    pub(super) unit: usize,
    pub(super) train: f64,
    /// `None` if the test samples lack the class, or contain nothing else.
    pub(super) test: Option<f64>,
}

/// The responses of units, sample by sample, and the class of each sample.
#[derive(Debug, Default)]
pub(super) struct Responses {
    pub(super) units: usize,
    pub(super) values: Vec<f32>,
    pub(super) classes: Vec<u32>,
}

impl Responses {
    /// For each class, the area under the curve of one unit: (Σ ranks of the class − n(n + 1)/2) / (n·m) for n samples of
    /// the class and m others, where equal responses share the mean of their ranks (Mann and Whitney, 1947).
    fn areas(&self, unit: usize, classes: usize) -> Vec<Option<f64>> {
        let value = |sample: usize| self.values[sample * self.units + unit];
        let mut order: Vec<usize> = (0..self.classes.len()).collect();
        order.sort_unstable_by(|one, other| value(*one).total_cmp(&value(*other)));
        let (mut sums, mut counts) = (vec![0.0; classes], vec![0_usize; classes]);
        let mut rank = 0;
        for equal in order.chunk_by(|one, other| value(*one) == value(*other)) {
            let mean = rank as f64 + (equal.len() + 1) as f64 / 2.0;
            rank += equal.len();
            for sample in equal {
                let class = self.classes[*sample] as usize;
                sums[class] += mean;
                counts[class] += 1;
            }
        }
        let area = |(sum, count): (&f64, &usize)| {
            let (own, others) = (*count as f64, (self.classes.len() - count) as f64);
            (own > 0.0 && others > 0.0).then(|| (sum - own * (own + 1.0) / 2.0) / (own * others))
        };
        sums.iter().zip(&counts).map(area).collect()
    }
}

/// For each class, the unit that detects it best on the training samples, and its area on the test samples.
pub(super) fn spots(train: &Responses, test: &Responses, classes: usize) -> Vec<Spot> {
    let mut best: Vec<Option<(usize, f64)>> = vec![None; classes];
    for unit in 0..train.units {
        for (best, area) in best.iter_mut().zip(train.areas(unit, classes)) {
            if let Some(area) = area
                && best.is_none_or(|(_, largest)| area > largest)
            {
                *best = Some((unit, area));
            }
        }
    }
    let spot = |(class, best): (usize, &Option<(usize, f64)>)| {
        let (unit, train) = (*best)?;
        Some(Spot { class, unit, train, test: test.areas(unit, classes)[class] })
    };
    best.iter().enumerate().filter_map(spot).collect()
}

/// The spots as a CSV table.
pub(super) fn table(spots: &[Spot]) -> String {
    let mut text = String::from("class,unit,train_auc,test_auc\n");
    for Spot { class, unit, train, test } in spots {
        let test = test.map_or(String::new(), |test| test.to_string());
        let _ = writeln!(text, "{class},{unit},{train},{test}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::RandomStream;

    /// The definition: over all pairs, with half a point for ties.
    fn naive(responses: &Responses, unit: usize, class: u32) -> Option<f64> {
        let value = |sample: usize| responses.values[sample * responses.units + unit];
        let (mut points, mut pairs) = (0.0, 0.0);
        for one in (0..responses.classes.len()).filter(|one| responses.classes[*one] == class) {
            for other in (0..responses.classes.len()).filter(|other| responses.classes[*other] != class) {
                pairs += 1.0;
                points += if value(one) > value(other) {
                    1.0
                } else if value(one) == value(other) {
                    0.5
                } else {
                    0.0
                };
            }
        }
        (pairs > 0.0).then(|| points / pairs)
    }

    fn responses(count: usize, units: usize) -> Responses {
        let stream = RandomStream::new(3, "responses");
        // Few levels, so that there are many ties.
        let value = |index: usize| (stream.uniform(index as u64) * 7.0).floor() as f32;
        let classes = (0..count).map(|sample| (stream.branch(1).uniform(sample as u64) * 3.0) as u32);
        Responses { units, values: (0..count * units).map(value).collect(), classes: classes.collect() }
    }

    #[test]
    fn areas_are_those_of_their_definition() {
        let responses = responses(60, 5);
        for unit in 0..5 {
            for (class, area) in responses.areas(unit, 4).into_iter().enumerate() {
                let expected = naive(&responses, unit, class as u32);
                match (area, expected) {
                    (Some(area), Some(expected)) => {
                        assert!((area - expected).abs() < 1e-12, "{area} {expected}")
                    }
                    (area, expected) => assert_eq!(area, expected),
                }
            }
        }
    }

    #[test]
    fn the_unit_that_knows_a_class_is_found() {
        let mut train = responses(40, 6);
        for sample in 0..40 {
            // Unit 4 responds to class 2 and to nothing else.
            train.values[sample * 6 + 4] = f32::from(u8::from(train.classes[sample] == 2));
        }
        let found = spots(&train, &Responses { units: 6, ..Responses::default() }, 3);
        assert_eq!(found[2], Spot { class: 2, unit: 4, train: 1.0, test: None });
        assert_eq!(found.len(), 3);
        assert!(table(&found).starts_with("class,unit,train_auc,test_auc\n0,"));
        assert!(table(&found).ends_with("2,4,1,\n"));
    }
}
