//! The tree against hashing the whole at once.
//!
//! For: any length, any order, both digests.
//! In and out: made-up files of a few chunks.
//! Invariants: none of its own.
//! Absent on purpose: chunk sizes above 64 KiB (the tree does not know the difference).

use proptest::prelude::*;

use super::*;
use crate::seal::hash::HashAs;

const CHUNK: u32 = 64 << 10;

/// A chunk's digest as the data path makes it.
fn chunk_digest(kind: DigestKind, bytes: &[u8], offset: u64, file_bytes: u64) -> Digest {
    let how = HashAs { offset, whole: file_bytes <= u64::from(CHUNK), crc_only: false };
    match kind {
        DigestKind::Crc64 => digest_of(kind, bytes),
        DigestKind::Blake3 if how.whole => *blake3::hash(bytes).as_bytes(),
        DigestKind::Blake3 => {
            use blake3::hazmat::HasherExt;
            let mut hasher = blake3::Hasher::new();
            hasher.set_input_offset(how.offset).update(bytes);
            hasher.finalize_non_root()
        }
    }
}

fn root(kind: DigestKind, data: &[u8], order: &[usize]) -> (Option<Digest>, usize) {
    let bytes = data.len() as u64;
    let mut tree = DigestTree::new(kind, bytes, CHUNK);
    let mut most = 0;
    for &index in order {
        assert_eq!(tree.root(), None, "no root before the last chunk");
        let start = index * CHUNK as usize;
        let end = data.len().min(start + CHUNK as usize);
        tree.put(index as u64, chunk_digest(kind, &data[start..end], start as u64, bytes));
        most = most.max(tree.nodes.len());
    }
    (tree.root(), most)
}

fn data(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3] ^ seed).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_order_gives_the_digest_of_the_whole(
        chunks in 0_usize..40,
        tail in prop_oneof![Just(1_usize), Just(CHUNK as usize), Just(1023), Just(1024), Just(1025), 1..CHUNK as usize],
        order in any::<prop::sample::Index>(),
        seed in any::<u64>(),
    ) {
        let bytes = if chunks == 0 { 0 } else { (chunks - 1) * CHUNK as usize + tail };
        let data = data(bytes, seed as u8);
        let mut indices: Vec<usize> = (0..chunks).collect();
        let mut state = seed | 1;
        for at in (1..chunks).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            indices.swap(at, (state >> 33) as usize % (at + 1));
        }
        if chunks > 0 && seed % 4 == 0 {
            indices.sort_unstable();
            indices.rotate_left(order.index(chunks));
        }
        for kind in [DigestKind::Blake3, DigestKind::Crc64] {
            prop_assert_eq!(root(kind, &data, &indices).0, Some(digest_of(kind, &data)));
        }
    }
}

#[test]
fn in_order_the_memory_is_the_logarithm_of_the_chunks() {
    let data = data(100 * CHUNK as usize, 3);
    let order: Vec<usize> = (0..100).collect();
    let (digest, most) = root(DigestKind::Blake3, &data, &order);
    assert_eq!(digest, Some(*blake3::hash(&data).as_bytes()));
    assert!(most <= 8, "{most} nodes for 100 chunks");
}

#[test]
fn every_count_of_chunks_up_to_seventy_merges_backwards() {
    for chunks in 1..70_usize {
        let data = data((chunks - 1) * CHUNK as usize + 1, chunks as u8);
        let order: Vec<usize> = (0..chunks).rev().collect();
        assert_eq!(root(DigestKind::Blake3, &data, &order).0, Some(*blake3::hash(&data).as_bytes()), "{chunks} chunks");
    }
}

#[test]
fn joined_crcs_are_those_of_the_whole_for_any_length() {
    let bytes: Vec<u8> = (0..70_000_u32).map(|at| ((at * 31) >> 3) as u8).collect();
    let crc = |bytes: &[u8]| crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes);
    for cut in [0, 1, 2, 7, 4096, 65_536, 69_999, 70_000] {
        let (first, second) = bytes.split_at(cut);
        assert_eq!(join_crc(crc(first), crc(second), second.len() as u64), crc(&bytes), "cut at {cut}");
    }
    let algorithm = crc_fast::CrcAlgorithm::Crc64Nvme;
    let theirs = crc_fast::checksum_combine(algorithm, 0x1234_5678_9abc_def0, 77, 123_456_789_012);
    assert_eq!(join_crc(0x1234_5678_9abc_def0, 77, 123_456_789_012), theirs);
}

#[test]
fn holes_told_in_any_order_give_the_digest_of_all_bytes() {
    const CHUNKS: usize = 37;
    for tail in [1, CHUNK as usize] {
        let mut bytes = data((CHUNKS - 1) * CHUNK as usize + tail, 9);
        let holes = [(0_u64, 3_u64), (5, 16), (17, 18), (20, 36)];
        for (first, end) in holes {
            bytes[first as usize * CHUNK as usize..end as usize * CHUNK as usize].fill(0);
        }
        let whole = bytes.len() as u64;
        let islands: Vec<u64> =
            (0..CHUNKS as u64).filter(|it| !holes.iter().any(|(a, b)| (a..b).contains(&it))).collect();
        for kind in [DigestKind::Blake3, DigestKind::Crc64] {
            for turn in 0..4 {
                let mut tree = DigestTree::new(kind, whole, CHUNK);
                let put = |tree: &mut DigestTree, index: u64| {
                    let start = index as usize * CHUNK as usize;
                    let end = bytes.len().min(start + CHUNK as usize);
                    tree.put(index, chunk_digest(kind, &bytes[start..end], start as u64, whole));
                };
                let (before, after) = islands.split_at(islands.len() * turn / 3);
                before.iter().for_each(|&index| put(&mut tree, index));
                holes.iter().rev().for_each(|&(first, end)| tree.put_zeros(first, end));
                assert!(turn == 3 || tree.zero_spans() > 0, "zeros wait for their neighbours");
                after.iter().rev().for_each(|&index| put(&mut tree, index));
                assert_eq!(
                    (tree.root(), tree.zero_spans()),
                    (Some(digest_of(kind, &bytes)), 0),
                    "{kind:?}, turn {turn}"
                );
            }
        }
    }
}
