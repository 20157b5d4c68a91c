//! Answers for images: a model handle, a classifier for a prompt and a class list, streams, and features of other models.
//! The command line, the server and the Python package are thin layers over this module.

mod answer;
mod batches;
mod builder;
mod classifier;
mod encoder;
mod features;
mod folders;
mod input;
mod memory;
mod model;
mod prepare;
mod requirements;
mod rounds;
mod slice;
mod stream;
mod text_cache;
mod together;

pub use answer::{Answer, AnswerReport, Origin as AnswerOrigin, RankedClass, ViewScore};
pub use batches::{batch_images, in_batches};
pub use builder::ClassifierBuilder;
pub use classifier::Classifier;
pub use encoder::{ClipEncoder, PIXEL_VERSION};
pub use features::{TextFeatures, ViewFeatures, adapt};
pub use folders::{cache_folder, model_places};
pub use input::ImageInput;
pub use memory::{MemoryNeed, limit as memory_limit, resident_memory};
pub use model::{Model, ModelBuilder};
pub use prepare::{FeaturePreparation, MOST_VIEWS, Preparation, Prepared, Settings, options_of};
pub use requirements::{Capabilities, check_origin};
pub use rounds::{Certainty, Rounds};
pub use slice::SliceRequest;
pub use stream::Stream;
pub use text_cache::TextCache;
pub use together::ViewPixels;
