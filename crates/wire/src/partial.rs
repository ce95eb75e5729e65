//! Bytes that are held until the rest of them has come, up to a limit.

/// Appends to what is held. It grows by doubling, as a vector does, but not beyond the limit: of a message that is just
/// within it, or just beyond, twice the memory would be taken.
pub fn extend_within(held: &mut Vec<u8>, more: &[u8], limit: usize) {
    let needed = held.len() + more.len();
    if needed > held.capacity() {
        let wanted = held.capacity().saturating_mul(2).min(limit).max(needed);
        held.reserve_exact(wanted - held.len());
    }
    held.extend_from_slice(more);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_in_few_steps_and_not_beyond_its_limit() {
        const LIMIT: usize = 100_000;
        let (mut held, mut steps) = (Vec::new(), 0);
        while held.len() < LIMIT {
            let before = held.capacity();
            extend_within(&mut held, &[b'x'; 100], LIMIT);
            steps += usize::from(held.capacity() != before);
            assert!(held.capacity() <= LIMIT, "{}", held.capacity());
        }
        assert!(steps < 15, "{steps}");
    }
}
