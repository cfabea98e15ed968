//! The newest bytes of a stream, at a fixed cost.

/// The last `capacity` bytes of everything written to it.
pub(crate) struct Ring {
    bytes: Vec<u8>,
    capacity: usize,
    /// Where the oldest byte stands once the ring is full.
    start: usize,
}

impl Ring {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { bytes: Vec::new(), capacity, start: 0 }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let mut bytes = &bytes[bytes.len().saturating_sub(self.capacity)..];
        let (now, rest) = bytes.split_at(bytes.len().min(self.capacity - self.bytes.len()));
        self.bytes.extend_from_slice(now);
        bytes = rest;
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(self.capacity - self.start));
            self.bytes[self.start..self.start + now.len()].copy_from_slice(now);
            self.start = (self.start + now.len()) % self.capacity;
            bytes = rest;
        }
    }

    /// Whether the newest so many bytes are all there.
    pub(crate) fn holds(&self, count: u64) -> bool {
        count <= self.bytes.len() as u64
    }

    /// The newest so many bytes, or all that are there: the older and the newer part.
    pub(crate) fn newest(&self, count: u64) -> (&[u8], &[u8]) {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let (newer, older) = self.bytes.split_at(self.start);
        let newer = last(newer, count);
        (last(older, count - newer.len()), newer)
    }
}

/// The last so many bytes.
pub(crate) fn last(bytes: &[u8], count: usize) -> &[u8] {
    &bytes[bytes.len().saturating_sub(count)..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_the_newest_bytes_whatever_the_chunks() {
        let whole: Vec<u8> = (0..100).collect();
        for size in [1, 3, 7, 10, 11, 99, 100] {
            let mut ring = Ring::new(10);
            for chunk in whole.chunks(size) {
                ring.write(chunk);
            }
            for count in [0, 1, 9, 10, 99] {
                let (older, newer) = ring.newest(count);
                assert_eq!([older, newer].concat(), last(&whole, 10.min(count as usize)), "{count}, chunks of {size}");
            }
            assert!(ring.holds(10) && !ring.holds(11));
        }
    }
}
