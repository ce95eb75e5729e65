//! Buffers for incomplete messages, up to a limit.

/// Appends to a buffer. Its capacity doubles, as that of a vector, but not beyond the limit: otherwise a message near
/// the limit would take twice the memory.
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
    fn the_buffer_grows_in_few_steps_and_not_beyond_its_limit() {
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
