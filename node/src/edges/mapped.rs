//! Arrays of numbers that lie in a file and are read and written as memory: the system keeps as much of them in memory as there is room
//! for, so that a graph and its scores may be more than that.

use std::fs::OpenOptions;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::path::Path;

use memmap2::MmapMut;

/// A number for which any bytes are one, zeros the number 0.
pub trait Plain: Copy + private::Sealed {}

impl Plain for u32 {}
impl Plain for u64 {}
impl Plain for f64 {}

mod private {
    /// Nobody else says of a type that any bytes are one of it.
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
    impl Sealed for f64 {}
}

/// An array. Its file has no name any more: it goes when this does, also by a kill.
pub struct Numbers<N> {
    map: MmapMut,
    count: usize,
    numbers: PhantomData<N>,
}

impl<N: Plain> Numbers<N> {
    /// `count` zeros in the folder `dir`, whose space on the disk is taken at once: memory of a file that finds none later would end the program.
    pub fn zeros(dir: &Path, count: usize) -> io::Result<Numbers<N>> {
        let path = dir.join(format!("numbers-{}.{:?}.tmp", std::process::id(), std::thread::current().id()));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
        let bytes = (count * size_of::<N>()).max(1); // a map of nothing is an error
        let taken = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes as u64);
        std::fs::remove_file(&path)?;
        taken?;
        // SAFETY: the file has no name, so nobody else can open it, cut it or write to it.
        #[allow(unsafe_code)]
        let map = unsafe { MmapMut::map_mut(&file)? };
        Ok(Numbers { map, count, numbers: PhantomData })
    }
}

impl<N: Plain> Deref for Numbers<N> {
    type Target = [N];

    fn deref(&self) -> &[N] {
        // SAFETY: any bytes are a number of a plain type, and a map begins at a page of memory.
        #[allow(unsafe_code)]
        let (_, numbers, _) = unsafe { self.map.align_to::<N>() };
        &numbers[..self.count]
    }
}

impl<N: Plain> DerefMut for Numbers<N> {
    fn deref_mut(&mut self) -> &mut [N] {
        // SAFETY: as above.
        #[allow(unsafe_code)]
        let (_, numbers, _) = unsafe { self.map.align_to_mut::<N>() };
        &mut numbers[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_no_file_stays() {
        let dir = tempfile::tempdir().unwrap();
        let mut numbers = Numbers::<u32>::zeros(dir.path(), 5_000).unwrap();
        let mut scores = Numbers::<f64>::zeros(dir.path(), 3).unwrap();
        assert!(numbers.iter().all(|number| *number == 0) && numbers.len() == 5_000);
        assert_eq!(scores[..], [0.0; 3]);
        numbers.iter_mut().zip(0..).for_each(|(number, value)| *number = value);
        scores[2] = 0.5;
        assert!(numbers.iter().zip(0..).all(|(number, value)| *number == value));
        assert_eq!(scores[..], [0.0, 0.0, 0.5]);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(Numbers::<u64>::zeros(dir.path(), 0).unwrap().is_empty());
    }
}
