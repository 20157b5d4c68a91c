//! Contact sheets and PNG files.

use rayon::prelude::*;
use tiny_skia::{IntSize, Pixmap};

use crate::{CLASS_NAMES, Domain, SIDE, Scene, World, draw, scene};

/// A PNG of all classes (across, in two halves) in all domains (down).
pub fn sheet(world: World) -> Vec<u8> {
    let across = CLASS_NAMES.len() / 2;
    let cells = (0..CLASS_NAMES.len() * Domain::ALL.len()).into_par_iter();
    let images: Vec<Vec<u8>> = cells.map(|cell| draw(&cell_scene(world, cell, across))).collect();
    let (width, height) = (across * SIDE, images.len() / across * SIDE);
    let mut rgb = vec![0u8; width * height * 3];
    for (cell, image) in images.iter().enumerate() {
        let (left, top) = (cell % across * SIDE, cell / across * SIDE);
        for (y, row) in image.chunks_exact(SIDE * 3).enumerate() {
            let start = ((top + y) * width + left) * 3;
            rgb[start..start + row.len()].copy_from_slice(row);
        }
    }
    png(&rgb, width as u32, height as u32)
}

/// Cells go along the rows; the second half of the classes follows below the first, domain by domain.
fn cell_scene(world: World, cell: usize, across: usize) -> Scene {
    let (row, column) = (cell / across, cell % across);
    let domain = Domain::ALL[row % Domain::ALL.len()];
    let class = row / Domain::ALL.len() * across + column;
    // A block holds every class once; other columns look into other blocks, so that the sheet is not one block.
    let block = (class as u64 % 4) * CLASS_NAMES.len() as u64;
    let mut scenes = (block..block + CLASS_NAMES.len() as u64).map(|index| scene(world, domain, index));
    scenes.find(|scene| scene.class == class).expect("a block holds every class")
}

/// Encodes RGB bytes as PNG. Empty when the size does not fit the bytes.
pub fn png(rgb: &[u8], width: u32, height: u32) -> Vec<u8> {
    let rgba = rgb.chunks_exact(3).flat_map(|p| [p[0], p[1], p[2], 255]).collect();
    let pixmap = IntSize::from_wh(width, height).and_then(|size| Pixmap::from_vec(rgba, size));
    pixmap.and_then(|pixmap| pixmap.encode_png().ok()).unwrap_or_default()
}
