//! The newest bytes of a stream, at a fixed cost.

/// The last `capacity` bytes of everything written to it.
pub(super) struct Ring {
    bytes: Vec<u8>,
    capacity: usize,
    /// Where the oldest byte stands once the ring is full.
    start: usize,
    /// Bytes written in all.
    total: u64,
}

impl Ring {
    pub(super) fn new(capacity: usize) -> Self {
        Self { bytes: Vec::new(), capacity, start: 0, total: 0 }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
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

    /// Whether bytes have been dropped.
    pub(super) fn is_cut(&self) -> bool {
        self.total > self.bytes.len() as u64
    }

    /// The older and the newer part.
    pub(super) fn parts(&self) -> (&[u8], &[u8]) {
        let (newer, older) = self.bytes.split_at(self.start);
        (older, newer)
    }
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
            let (older, newer) = ring.parts();
            assert_eq!([older, newer].concat(), &whole[90..], "chunks of {size}");
            assert!(ring.is_cut());
        }
    }
}
