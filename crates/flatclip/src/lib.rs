//! Prompt tuning and test-time adaptation for CLIP-like vision-language models, led by flatness: SAPT tunes a prompt into a
//! flat minimum, STSS answers with those views of an image whose loss stays flat around it, and together they are FGA.
//! It also implements the methods they are compared with, behind the same calls.
//!
//! ```
//! use flatclip::{Classifier, Model, Image};
//! # fn main() -> flatclip::Result<()> {
//! # let (folder, image) = (tempfile::tempdir().unwrap(), Image { width: 8, height: 8, rgb: vec![90; 192] });
//! # let path = folder.path().join("photo.png");
//! # std::fs::write(&path, flatclip::image::sheet::encode_png(&image)?).unwrap();
//! let model = Model::load("pocket")?; // or a folder, a file, "ViT-B-16/openai"
//! let animals = Classifier::builder(&model)
//!     .classes(["cat", "dog", "fish"])
//!     .method("stss")
//!     .set("radius", 0.5)? // known and in range, or an error here
//!     .views(16)
//!     .build()?; // text features are computed here, once
//! let answer = animals.answer(&Image::open(&path)?)?; // from any number of threads
//! println!("{} {:.2}", answer.label(), answer.confidence());
//! for view in answer.selected() {
//!     println!("view {} has score {:?}", view.index, view.score);
//! }
//! # Ok(()) }
//! ```
//!
//! # What to call
//!
//! | for | take |
//! |---|---|
//! | answers for images | [`Model`], [`Classifier`], [`Answer`]; [`Stream`] for methods that learn from a stream |
//! | methods on features of another model | [`adapt`], [`ViewFeatures`], [`TextFeatures`], [`Classifier::from_text_bank`] |
//! | a method of one's own | [`methods::Adapter`], [`methods::AdapterSpec`], [`Registry`] |
//! | progress and cancellation | [`Progress`] |
//! | what went wrong | [`Error`], its [code](Error::code) and its [hint](Error::hint) |
//!
//! Tuning, evaluation, loss landscapes and reports are in the crate `flatclip-lab`. Runnable programs are in `examples/`.
//!
//! # Promises
//!
//! Random draws are keyed by content and seed, never by path, order or thread, so an answer is the same for any number of
//! threads, batch size, order, shard or resume, on one instruction set. Bad input is a typed [`Error`]. Nothing is printed,
//! and the environment is read in two places only: [`cache_folder`] and [`model_places`].
//!
//! Modules and items hidden from this page are open to `flatclip-lab` and are not part of the stable interface.
//!
//! # Inside
//!
//! Data flows one way, and the modules are listed in that order; a module uses modules above it only:
//!
//! ```text
//! architecture -> weights, text, image -> model -> prompt -> methods -> surface -> classify
//! ```

#[doc(hidden)]
pub mod digest;
pub mod error;
#[doc(hidden)]
pub mod files;
pub mod options;
pub mod progress;
pub mod rng;
#[doc(hidden)]
pub mod sealed;
#[doc(hidden)]
pub mod settings;

pub mod architecture;

pub mod image;
pub mod text;
pub mod weights;

pub mod model;

pub mod prompt;

pub mod methods;

#[doc(hidden)]
pub mod surface;

#[doc(hidden)]
pub mod classify;

#[doc(inline)]
pub use classify::{
    Answer, AnswerOrigin, AnswerReport, Certainty, Classifier, ClassifierBuilder, ImageInput, MemoryNeed, Model,
    ModelBuilder, RankedClass, SliceRequest, Stream, TextCache, TextFeatures, ViewFeatures, ViewScore, adapt,
    cache_folder, memory_limit, model_places, resident_memory,
};
pub use error::{Error, Hint, Result};
pub use flatclip_tensor::Matrix;
pub use flatclip_tensor::pages::give_back;
pub use image::Image;
pub use methods::Registry;
pub use methods::statistics::{import_statistics, load_statistics, save_statistics};
pub use progress::Progress;
pub use prompt::Prompt;
