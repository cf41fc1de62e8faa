//! The memory of processes in a checkpoint, compressed: LZ4 frames beside CRIU's other images. CRIU reads its own format alone, so a
//! restore works on an expanded copy.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use lz4_flex::frame::{FrameDecoder, FrameEncoder};
use tempfile::TempDir;

/// Names of the images with the memory of processes.
pub const MEMORY: &str = "pages-";
const COMPRESSED: &str = "lz4";

/// Compresses the images with the memory of processes.
pub fn compress(images: &Path) -> io::Result<()> {
    for path in files(images)? {
        if !name(&path).starts_with(MEMORY) {
            continue;
        }
        let mut compressed = path.clone().into_os_string();
        compressed.push(format!(".{COMPRESSED}"));
        let mut encoder = FrameEncoder::new(File::create(compressed)?);
        io::copy(&mut File::open(&path)?, &mut encoder)?;
        encoder.finish()?;
        fs::remove_file(path)?;
    }
    Ok(())
}

/// Writes an expanded copy of compressed images into a new directory in `above`. `None` if none is compressed.
pub fn expand(images: &Path, above: &Path) -> io::Result<Option<TempDir>> {
    let all = files(images)?;
    let is_compressed = |path: &Path| path.extension() == Some(OsStr::new(COMPRESSED));
    if !all.iter().any(|path| is_compressed(path)) {
        return Ok(None);
    }
    let copy = tempfile::Builder::new().prefix("images-").tempdir_in(above)?;
    for path in all {
        if is_compressed(&path) {
            let target = copy.path().join(path.file_stem().unwrap_or_default());
            io::copy(&mut FrameDecoder::new(File::open(&path)?), &mut File::create(target)?)?;
        } else {
            fs::copy(&path, copy.path().join(path.file_name().unwrap_or_default()))?;
        }
    }
    Ok(Some(copy))
}

fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_reads_back_and_other_images_stay() {
        let (images, above) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let memory: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 5_000) as u8).collect();
        fs::write(images.path().join("pages-1.img"), &memory).unwrap();
        fs::write(images.path().join("core-1.img"), "core").unwrap();
        assert!(expand(images.path(), above.path()).unwrap().is_none());
        compress(images.path()).unwrap();
        let compressed = fs::metadata(images.path().join("pages-1.img.lz4")).unwrap();
        assert!(compressed.len() < 100_000 && !images.path().join("pages-1.img").exists());
        let copy = expand(images.path(), above.path()).unwrap().unwrap();
        assert_eq!(fs::read(copy.path().join("pages-1.img")).unwrap(), memory);
        assert_eq!(fs::read(copy.path().join("core-1.img")).unwrap(), b"core");
        drop(copy);
        assert_eq!(fs::read_dir(above.path()).unwrap().count(), 0);
    }
}
