//! A pocket world: 32 classes drawn by code in seven styles, and the small CLIP models trained on it.
//!
//! Every image is a pure function of (world, domain, index): [`scene`] draws the graph, [`draw`] the pixels,
//! [`caption`] the words. The bytes are the same on every machine and for any number of threads.

mod canvas;
mod caption;
mod classes;
mod colour;
mod figure;
mod models;
mod rng;
mod scene;
mod sheet;
mod split;
mod styles;
mod texture;
mod trig;

pub use caption::{Caption, caption};
pub use colour::{Background, Colour};
pub use models::{MODEL_NAMES, ModelFile, TRAINED_ON, model_files};
pub use scene::{Domain, Scene, World, scene};
pub use sheet::{png, sheet};
pub use split::{Split, render_split};
pub use styles::draw;

/// Width and height of every image in pixels. Larger than the pocket models' input, so that a crop brings detail.
pub const SIDE: usize = 112;

/// The names of the classes, in the order of the labels.
pub const CLASS_NAMES: [&str; 32] = {
    let mut names = [""; 32];
    let mut class = 0;
    while class < names.len() {
        names[class] = classes::CLASSES[class].name;
        class += 1;
    }
    names
};
