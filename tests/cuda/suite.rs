//! Every collective on device memory against the same collective on the host, bit for bit.

use half::{bf16, f16};
use unisono::{DType, Group, ReduceOp};

use super::buffer::Buffer;

/// Random values of a type, the same for equal seeds; their sums are inexact.
fn values(dtype: DType, count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(count * dtype.size());
    for _ in 0..count {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let value = (state >> 40) as f64 / (1u64 << 21) as f64 - 4.0;
        match dtype {
            DType::F32 => bytes.extend_from_slice(&(value as f32).to_ne_bytes()),
            DType::F64 => bytes.extend_from_slice(&(value * 1.000_000_000_1).to_ne_bytes()),
            DType::F16 => bytes.extend_from_slice(&f16::from_f64(value).to_ne_bytes()),
            DType::BF16 => bytes.extend_from_slice(&bf16::from_f64(value).to_ne_bytes()),
            DType::C64 => {
                let parts = [value as f32, -2.0 * value as f32];
                parts.iter().for_each(|part| bytes.extend_from_slice(&part.to_ne_bytes()));
            }
            DType::C128 => {
                let parts = [value, value * -1.000_000_000_1];
                parts.iter().for_each(|part| bytes.extend_from_slice(&part.to_ne_bytes()));
            }
            DType::Bool => bytes.push((state >> 63) as u8),
            _ => bytes.extend_from_slice(&state.to_be_bytes()[..dtype.size()]),
        }
    }
    bytes
}

struct Case<'a> {
    group: &'a Group,
    dtype: DType,
    count: usize,
    start: usize,
}

impl Case<'_> {
    fn mine(&self, salt: u64) -> Vec<u8> {
        values(self.dtype, self.count, self.group.rank() as u64 + 100 * salt + self.count as u64)
    }

    fn device(&self, bytes: &[u8]) -> Buffer {
        Buffer::of(bytes, self.start)
    }

    fn same(&self, verb: &str, found: &Buffer, expected: &[u8]) {
        let (rank, size) = (self.group.rank(), self.group.size());
        let found = found.read();
        let wrong = found.iter().zip(expected).position(|(a, b)| a != b);
        let Case { dtype, count, start, .. } = self;
        assert!(
            wrong.is_none() && found.len() == expected.len(),
            "{verb} of {count} x {dtype} at +{start}: rank {rank} of {size} differs at byte {wrong:?}"
        );
    }

    fn reductions(&self, operation: ReduceOp) {
        let (group, dtype) = (self.group, self.dtype);
        let (input, root) = (self.mine(1), group.size() - 1);
        let mut expected = input.clone();
        group.raw().all_reduce(&mut expected, dtype, operation).unwrap();
        let buffer = self.device(&input);
        group.raw().all_reduce(buffer.span(), dtype, operation).unwrap();
        self.same(&format!("all_reduce ({operation})"), &buffer, &expected);

        let (mut prefix, buffer) = (input.clone(), self.device(&input));
        group.raw().scan(&mut prefix, dtype, operation).unwrap();
        group.raw().scan(buffer.span(), dtype, operation).unwrap();
        self.same("scan", &buffer, &prefix);

        let buffer = self.device(&input);
        group.raw().reduce(buffer.span(), dtype, operation, root).unwrap();
        self.same("reduce", &buffer, if group.rank() == root { &expected } else { &input });

        let (buffer, output) = (self.device(&input), self.device(&vec![0; input.len()]));
        let wanted = (group.rank() == root).then(|| output.span());
        group.raw().reduce_to(buffer.span(), wanted, dtype, operation, root).unwrap();
        self.same("reduce_to", &buffer, &input);
        let nothing = vec![0; input.len()];
        self.same("reduce_to", &output, if group.rank() == root { &expected } else { &nothing });

        let counts = uneven(self.count, group.size());
        let before: usize = counts[..group.rank()].iter().sum();
        let (first, bytes) = (before * dtype.size(), counts[group.rank()] * dtype.size());
        let output = self.device(&vec![0; bytes]);
        group.raw().reduce_scatter(buffer.span(), output.span(), &counts, dtype, operation).unwrap();
        self.same("reduce_scatter", &output, &expected[first..first + bytes]);
    }

    fn moves(&self) {
        let (group, dtype, size) = (self.group, self.dtype, self.group.size());
        let (rank, root) = (group.rank(), size / 2);
        let input = self.mine(2);
        let mut expected = input.clone();
        group.raw().broadcast(&mut expected, dtype, root).unwrap();
        let buffer = self.device(&input);
        group.raw().broadcast(buffer.span(), dtype, root).unwrap();
        self.same("broadcast", &buffer, &expected);

        let counts = uneven(self.count, size);
        let full = values(dtype, self.count, 5);
        let part = {
            let first = counts[..rank].iter().sum::<usize>() * dtype.size();
            &full[first..first + counts[rank] * dtype.size()]
        };
        let (mine, all) = (self.device(part), self.device(&vec![0; full.len()]));
        group.raw().all_gather(mine.span(), all.span(), &counts, dtype).unwrap();
        self.same("all_gather", &all, &full);
        let all = self.device(&vec![0; full.len()]);
        let output = (rank == root).then(|| all.span());
        group.raw().gather(mine.span(), output, &counts, dtype, root).unwrap();
        self.same("gather", &all, if rank == root { &full } else { &[0; 1 << 20][..full.len()] });
        let (all, mine) = (self.device(&full), self.device(&vec![0; part.len()]));
        let given = (rank == root).then(|| all.span());
        group.raw().scatter(given, &counts, mine.span(), dtype, root).unwrap();
        self.same("scatter", &mine, part);

        let to: Vec<usize> = (0..size).map(|other| (rank + 2 * other) % 5 * self.count / 7).collect();
        let from: Vec<usize> = (0..size).map(|other| (other + 2 * rank) % 5 * self.count / 7).collect();
        let input = values(dtype, to.iter().sum(), rank as u64);
        let mut expected = vec![0; from.iter().sum::<usize>() * dtype.size()];
        group.raw().all_to_all(&input, &to, &mut expected, &from, dtype).unwrap();
        let (given, got) = (self.device(&input), self.device(&vec![0; expected.len()]));
        group.raw().all_to_all(given.span(), &to, got.span(), &from, dtype).unwrap();
        self.same("all_to_all", &got, &expected);

        if size > 1 && rank < 2 {
            let input = self.mine(3);
            let (given, got) = (self.device(&input), self.device(&vec![0; input.len()]));
            match rank {
                0 => group.raw().send(given.span(), dtype, 1, 7).unwrap(),
                _ => {
                    group.raw().recv(got.span(), dtype, 0, 7).unwrap();
                    let theirs = values(dtype, self.count, 300 + self.count as u64);
                    self.same("recv", &got, &theirs);
                }
            }
        }
    }
}

/// Splits a count into unequal parts, the first of them empty.
fn uneven(count: usize, size: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = (0..size).map(|rank| count * rank / (size * 2)).collect();
    counts[size - 1] += count - counts.iter().sum::<usize>();
    counts
}

/// Every collective, type and operation, in several lengths and at several alignments.
pub fn run(group: &Group) {
    for dtype in DType::ALL {
        let lengths = [(0, 0), (1, 0), (7, dtype.size()), (1000, 0), (9001, dtype.size()), (120_003, 0)];
        for (count, start) in lengths {
            let case = Case { group, dtype, count, start };
            let short = count <= 1000 || dtype == DType::F16;
            for operation in ReduceOp::ALL {
                if operation.takes(dtype) && (short || operation == ReduceOp::Sum) {
                    case.reductions(operation);
                }
            }
            case.moves();
        }
    }
    nan_wins(group);
    large(group);
    mistakes(group);
}

fn nan_wins(group: &Group) {
    let mut values = [1.0f32, 2.0, 3.0];
    values[group.rank() % 2] = f32::NAN;
    for operation in [ReduceOp::Min, ReduceOp::Max] {
        let buffer = Buffer::of(bytemuck::bytes_of(&values), 0);
        group.raw().all_reduce(buffer.span(), DType::F32, operation).unwrap();
        let found: Vec<f32> = buffer.read().chunks_exact(4).map(bytemuck::pod_read_unaligned).collect();
        assert!(
            found[0].is_nan() && (group.size() == 1 || found[1].is_nan()) && found[2] == 3.0,
            "{found:?}"
        );
    }
}

/// More than one window of everything.
fn large(group: &Group) {
    let count = 9_000_001;
    let case = Case { group, dtype: DType::F32, count, start: 0 };
    let input = case.mine(9);
    let mut expected = input.clone();
    group.raw().all_reduce(&mut expected, DType::F32, ReduceOp::Sum).unwrap();
    let buffer = case.device(&input);
    group.raw().all_reduce(buffer.span(), DType::F32, ReduceOp::Sum).unwrap();
    case.same("a large all_reduce", &buffer, &expected);
    group.raw().broadcast(buffer.span(), DType::F32, 0).unwrap();
    case.same("a large broadcast", &buffer, &expected);
}

/// Calls on which ranks disagree are rejected on all of them, and change nothing.
fn mistakes(group: &Group) {
    if group.size() == 1 || group.members().len() != group.size() {
        return;
    }
    let mut host = [1.0f32; 100];
    let buffer = Buffer::of(bytemuck::cast_slice::<f32, u8>(&host), 0);
    let mixed = match group.rank() {
        0 => group.all_reduce(&mut host, ReduceOp::Sum),
        _ => group.raw().all_reduce(buffer.span(), DType::F32, ReduceOp::Sum),
    };
    let error = mixed.expect_err("host and device memory in one call").to_string();
    assert!(error.contains("in CUDA memory"), "{error}");
    assert_eq!(host, [1.0; 100]);
    assert_eq!(buffer.read(), bytemuck::cast_slice::<f32, u8>(&host));
}

/// Reduces in an endless loop, until a rank is lost.
pub fn endless(group: &Group) {
    let buffer = Buffer::of(&vec![0; 8 << 20], 0);
    for call in 0.. {
        if let Err(error) = group.raw().all_reduce(buffer.span(), DType::F32, ReduceOp::Sum) {
            eprintln!("{error}");
            return;
        }
        if call == 10 {
            eprintln!("under way");
        }
    }
}
