//! Row boundaries of servers: equal parts, of which the last takes the remainder; with fewer rows than servers, one row each.

/// The first row of each server, and the number of rows: one more entry than servers.
pub(crate) fn boundaries(rows: usize, servers: usize) -> Vec<usize> {
    let length = rows / servers;
    (0..=servers)
        .map(|server| match length {
            0 => server.min(rows),
            _ if server == servers => rows,
            _ => server * length,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_are_those_that_users_know() {
        assert_eq!(boundaries(10, 3), [0, 3, 6, 10]);
        assert_eq!(boundaries(500, 4), [0, 125, 250, 375, 500]);
        assert_eq!(boundaries(11, 4), [0, 2, 4, 6, 11]);
        assert_eq!(boundaries(3, 4), [0, 1, 2, 3, 3]);
        assert_eq!(boundaries(1, 1), [0, 1]);
        assert_eq!(boundaries(0, 2), [0, 0, 0]);
    }
}
