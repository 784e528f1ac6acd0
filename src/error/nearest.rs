//! Spelling suggestions: the valid name nearest to the one that was given.

/// The nearest of `names`, unless all of them differ too much.
fn nearest<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = given.to_lowercase().replace('-', "_");
    let ((distance, _), name) = names
        .into_iter()
        .map(|name| (distances(&given, &name.to_lowercase()), name))
        .min_by_key(|(distances, _)| *distances)?;
    let alike = distance <= (name.chars().count() / 3).max(1);
    alike.then_some(name)
}

/// "did you mean `name`?", or other advice if no name is near.
pub fn advice<'a>(given: &str, names: impl IntoIterator<Item = &'a str>, otherwise: &str) -> String {
    match nearest(given, names) {
        Some(name) => format!("did you mean `{name}`?"),
        None => otherwise.into(),
    }
}

/// The edit distance, and a weighted distance as tie-breaker: typists omit, double or swap characters more often than
/// they replace one by another.
fn distances(one: &str, other: &str) -> (usize, usize) {
    (distance(one, other, 1, 1), distance(one, other, 3, 2))
}

/// The minimum cost of turning one name into the other by changing characters, or inserting, removing, or swapping
/// adjacent ones (Damerau-Levenshtein, optimal string alignment).
fn distance(one: &str, other: &str, change: usize, slip: usize) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![(0..=other.len()).map(|letters| letters * slip).collect::<Vec<usize>>()];
    for i in 1..=one.len() {
        let mut row = vec![i * slip];
        for j in 1..=other.len() {
            let changed = rows[i - 1][j - 1] + change * usize::from(one[i - 1] != other[j - 1]);
            let mut best = changed.min(rows[i - 1][j] + slip).min(row[j - 1] + slip);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                best = best.min(rows[i - 2][j - 2] + slip);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        let names = ["add", "sgd", "momentum", "adagrad", "adam", "learning_rate", "beta1"];
        for (given, expected) in [
            ("momentun", Some("momentum")),
            ("AdaGrad", Some("adagrad")),
            ("learning-rate", Some("learning_rate")),
            ("sdg", Some("sgd")),
            ("adm", Some("adam")),
            ("adx", Some("add")),
            ("beta", Some("beta1")),
            ("SGDs", Some("sgd")),
            ("zebra crossing", None),
            ("", None),
        ] {
            assert_eq!(nearest(given, names), expected, "{given:?}");
        }
        assert_eq!(nearest("add", []), None);
    }

    #[test]
    fn distances_are_counted_in_letters() {
        for (one, other, expected) in
            [("", "abc", 3), ("abc", "abc", 0), ("abc", "acb", 1), ("κit", "kits", 2)]
        {
            assert_eq!((distances(one, other).0, distances(other, one).0), (expected, expected));
        }
    }
}
