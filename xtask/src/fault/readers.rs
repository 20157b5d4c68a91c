//! Every reader of the library behind one function: a file goes in, a name of what was read comes out, or the refusal.

use super::Trial;
use anyhow::{Context as _, Result, bail, ensure};
use flatclip::image::DecodeOptions;
use flatclip::weights::Checkpoint;
use flatclip::{Error, Model, Prompt};
use flatclip_lab::data::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

/// What a reader does with a changed file that it does not refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carries {
    /// The file carries a checksum: other content must be refused.
    Checksum,
    /// The format has none: other content is read as it is, and counted.
    Nothing,
}

/// One reader, and where its files are.
pub(crate) struct Reader {
    /// The name of the folder with its files in `fuzz/corpus`.
    pub name: &'static str,
    pub carries: Carries,
    /// A name of everything that was read.
    pub read: fn(&Path) -> Result<u64, Error>,
}

pub(crate) const READERS: &[Reader] = &[
    Reader { name: "safetensors", carries: Carries::Nothing, read: weights },
    Reader { name: "torch", carries: Carries::Nothing, read: weights },
    Reader { name: "jpeg", carries: Carries::Nothing, read: image },
    Reader { name: "png", carries: Carries::Nothing, read: image },
    Reader { name: "gif", carries: Carries::Nothing, read: image },
    Reader { name: "webp", carries: Carries::Nothing, read: image },
    Reader { name: "bmp", carries: Carries::Nothing, read: image },
    Reader { name: "tiff", carries: Carries::Nothing, read: image },
    Reader { name: "model-folder", carries: Carries::Nothing, read: model_folder },
    Reader {
        name: "descriptions",
        carries: Carries::Nothing,
        read: |path| Ok(name_of(&format!("{:?}", flatclip::prompt::Descriptions::read(path)?))),
    },
    Reader {
        name: "recipe",
        carries: Carries::Nothing,
        read: |path| Ok(name_of(&format!("{:?}", flatclip_lab::reproduce::Recipe::read(path)?))),
    },
    Reader { name: "prompt", carries: Carries::Checksum, read: |path| prompt_name(&Prompt::load(path)?) },
    Reader { name: "tar", carries: Carries::Nothing, read: |path| data_set("wds", path) },
    Reader { name: "table", carries: Carries::Nothing, read: |path| data_set("csv", path) },
    Reader {
        name: "class-names",
        carries: Carries::Nothing,
        read: |path| Ok(name_of(&flatclip::text::read_class_names(path)?)),
    },
    Reader {
        name: "text-features",
        carries: Carries::Nothing,
        read: |path| prompt_name(&flatclip::prompt::read_text_features(path)?),
    },
];

/// A reader by name.
pub(crate) fn reader(name: &str) -> Result<&'static Reader> {
    READERS.iter().find(|reader| reader.name == name).with_context(|| format!("no reader {name}"))
}

/// Files to start from.
pub(crate) fn corpus(name: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let folder = crate::root()?.join("fuzz/corpus").join(name);
    let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    paths.sort();
    ensure!(!paths.is_empty(), "{} is empty", folder.display());
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, std::fs::read(&path).with_context(|| path.display().to_string())?))
    };
    paths.into_iter().map(read).collect()
}

/// What became of a damaged file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Refused,
    Same,
    Different,
}

impl Fate {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Same => "read the same",
            Self::Different => "read as other content",
        }
    }
}

impl Reader {
    /// Writes bytes to a file of this name and reads it. A refusal must name the file, or what it belongs to.
    pub(crate) fn fate(&self, folder: &Path, file: &str, bytes: &[u8], whole: Option<u64>) -> Result<Fate> {
        let path = folder.join(file);
        std::fs::write(&path, bytes)?;
        match (self.read)(&path) {
            Ok(found) if Some(found) == whole => Ok(Fate::Same),
            Ok(_) if self.carries == Carries::Checksum => bail!("read as other content although it carries a checksum"),
            Ok(_) => Ok(Fate::Different),
            Err(error) => {
                let text = error.to_string();
                ensure!(text.contains(&folder.display().to_string()), "the refusal names no file: {text}");
                ensure!(text.len() < 2000, "a refusal of {} characters", text.len());
                ensure!(!text.contains(['\u{1b}', '\0', '\r']), "control characters in the refusal: {text:?}");
                Ok(Fate::Refused)
            }
        }
    }

    /// Damaged copies of every file of the corpus, `count` in all.
    pub(crate) fn attack(&self, trial: &mut Trial, count: usize) -> Result<()> {
        let folder = trial.folder.clone();
        let files = corpus(self.name)?;
        let mut whole = Vec::new();
        for (file, bytes) in &files {
            let path = folder.join(file);
            std::fs::write(&path, bytes)?;
            whole.push((self.read)(&path).ok());
        }
        ensure!(whole.iter().any(Option::is_some), "no file of the corpus {} is readable", self.name);
        for number in 0..count {
            let ((file, bytes), whole) = (&files[number % files.len()], whole[number % files.len()]);
            let damaged = super::mutate::mutant(bytes, file, number as u64);
            let mut fate = None;
            trial.case(&format!("{} {file} mutant {number}", self.name), || {
                fate = Some(self.fate(&folder, file, &damaged, whole)?);
                Ok(())
            });
            if let Some(fate) = fate {
                trial.add(fate.word(), 1);
            }
        }
        Ok(())
    }
}

fn weights(path: &Path) -> Result<u64, Error> {
    Ok(name_of(&Checkpoint::open(path)?.hash()?))
}

fn image(path: &Path) -> Result<u64, Error> {
    let image = flatclip::image::open(path, &DecodeOptions::default())?;
    if image.rgb.len() != 3 * image.width * image.height {
        return Err(Error::config("image", "has another number of bytes than its size says"));
    }
    Ok(name_of(&(image.width, image.height, &image.rgb)))
}

/// A model folder with this file in the place of its own.
fn model_folder(path: &Path) -> Result<u64, Error> {
    let (folder, own) = (path.with_extension("folder"), path.file_name().unwrap_or_default());
    let failed = |error: std::io::Error| Error::config("test", error.to_string());
    std::fs::create_dir_all(&folder).map_err(failed)?;
    for (name, bytes) in flatclip_pocket::model_files("pocket").unwrap_or_default() {
        // A tokenizer in one file stands for the two.
        let replaced = own == "tokenizer.json" && ["vocab.json", "merges.txt"].contains(name);
        if own != *name && !replaced && !folder.join(name).is_file() {
            std::fs::write(folder.join(name), bytes).map_err(failed)?;
        }
    }
    std::fs::copy(path, folder.join(own)).map_err(failed)?;
    let model = Model::builder(folder.display().to_string()).offline(true).hash_cache(None).load(&())?;
    let tokens = model.tokenizer().encode("a photo of a snail and a butterfly");
    Ok(name_of(&(model.describe(), model.hash(), format!("{tokens:?}"))))
}

fn data_set(kind: &str, path: &Path) -> Result<u64, Error> {
    let data = data::open(&format!("{kind}:{}", path.display()), &OpenOptions::default())?;
    let mut all = DefaultHasher::new();
    data.classes.hash(&mut all);
    for sample in &data.samples {
        (&sample.id, sample.label).hash(&mut all);
        if let data::Source::Member { .. } = sample.source {
            sample.read()?.hash(&mut all);
        }
    }
    Ok(all.finish())
}

fn prompt_name(prompt: &Prompt) -> Result<u64, Error> {
    Ok(name_of(&format!("{:?} {:?}", prompt.kind, prompt.provenance)))
}

fn name_of<T: std::hash::Hash + ?Sized>(value: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
