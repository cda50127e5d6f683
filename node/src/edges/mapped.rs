//! Arrays of numbers that lie in a file and are read and written as memory: the system keeps as much of them in memory as there is room
//! for, so that the links of a graph may be more than that.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use memmap2::MmapMut;

/// An array of page numbers. Its file has no name any more: it goes when this does, also by a kill.
pub struct Numbers {
    map: MmapMut,
    count: usize,
}

impl Numbers {
    /// `count` zeros in the folder `dir`, whose space on the disk is taken at once: memory of a file that finds none later would end the program.
    pub fn zeros(dir: &Path, count: usize) -> io::Result<Numbers> {
        let path = dir.join(format!("links-{}.{:?}.tmp", std::process::id(), std::thread::current().id()));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
        let bytes = (count * size_of::<u32>()).max(1); // a map of nothing is an error
        let taken = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes as u64);
        std::fs::remove_file(&path)?;
        taken?;
        // SAFETY: the file has no name, so nobody else can open it, cut it or write to it.
        #[allow(unsafe_code)]
        let map = unsafe { MmapMut::map_mut(&file)? };
        Ok(Numbers { map, count })
    }

    /// The numbers.
    pub fn get(&self) -> &[u32] {
        // SAFETY: any four bytes are a number, and a map begins at a page of memory.
        #[allow(unsafe_code)]
        let (_, numbers, _) = unsafe { self.map.align_to::<u32>() };
        &numbers[..self.count]
    }

    /// The numbers, to be changed.
    pub fn get_mut(&mut self) -> &mut [u32] {
        // SAFETY: as above.
        #[allow(unsafe_code)]
        let (_, numbers, _) = unsafe { self.map.align_to_mut::<u32>() };
        &mut numbers[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_no_file_stays() {
        let dir = tempfile::tempdir().unwrap();
        let mut numbers = Numbers::zeros(dir.path(), 5_000).unwrap();
        assert!(numbers.get().iter().all(|number| *number == 0) && numbers.get().len() == 5_000);
        numbers.get_mut().iter_mut().zip(0..).for_each(|(number, value)| *number = value);
        assert!(numbers.get().iter().zip(0..).all(|(number, value)| *number == value));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(Numbers::zeros(dir.path(), 0).unwrap().get().is_empty());
    }
}
