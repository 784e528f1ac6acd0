//! Device memory with contents, for tests.

use std::sync::Arc;

use unisono::cuda::{Device, DeviceMemory, Span};

/// Bytes on a device, at any alignment.
pub struct Buffer {
    device: Arc<Device>,
    memory: DeviceMemory,
    start: usize,
    bytes: usize,
}

impl Buffer {
    /// A buffer with these bytes, `start` bytes after an aligned address.
    pub fn of(bytes: &[u8], start: usize) -> Buffer {
        let device = Device::get(0).unwrap();
        let memory = DeviceMemory::new(&device, start + bytes.len()).unwrap();
        let buffer = Buffer { device, memory, start, bytes: bytes.len() };
        // SAFETY: both have the same length, and the copy is waited for.
        unsafe {
            buffer.device.stream().copy(buffer.address(), bytes.as_ptr().addr() as u64, bytes.len()).unwrap()
        };
        buffer.device.stream().synchronize().unwrap();
        buffer
    }

    fn address(&self) -> u64 {
        self.memory.address() + self.start as u64
    }

    /// A span for calls while the buffer lives.
    pub fn span(&self) -> Span {
        // SAFETY: tests keep their buffers until their calls have returned.
        unsafe { self.memory.span() }.part(self.start, self.bytes).unwrap()
    }

    pub fn read(&self) -> Vec<u8> {
        let mut bytes = vec![0u8; self.bytes];
        // SAFETY: both have the same length, and the copy is waited for.
        unsafe {
            self.device.stream().copy(bytes.as_mut_ptr().addr() as u64, self.address(), self.bytes).unwrap();
        }
        self.device.stream().synchronize().unwrap();
        bytes
    }
}
