//! Damaged, crafted and absurd files against the readers, in this process (the library is the one that the binary uses), and
//! against the command line.

mod command_line;
mod images;
mod many;
mod own;
mod text;
mod weights;

use super::readers::reader;
use super::{Suite, Test, Trial};
use anyhow::Result;

pub(super) const TESTS: &[Test] = &[
    test("B1", "safetensors cut at every length to 4096 and at 1000 others", "refused with the path", weights::cut),
    test(
        "B2",
        "each byte of a safetensors header changed by three masks",
        "refused, or the same weights",
        weights::header,
    ),
    test(
        "B3",
        "crafted safetensors: lengths, offsets, overlap, holes, keys, types, shapes, NaN",
        "each is refused",
        |trial| weights::attacks(trial, "safetensors-attacks", "safetensors"),
    ),
    test(
        "B4",
        "pickles that call, explode, nest, lie about lengths; zip bombs",
        "refused below 2 s and 200 MB; nothing runs",
        |trial| weights::attacks(trial, "pickle-attacks", "torch"),
    ),
    test(
        "B5",
        "JPEG cut and flipped at random",
        "refused, or an image of the size told; below 5 s",
        images::damaged_jpeg,
    ),
    test(
        "B6",
        "bombs: small files of many pixels",
        "refused at the header, or below 3 bytes x pixels + 64 MB; lossless WebP: below that of 89 million pixels",
        images::bombs,
    ),
    test("B7", "every layout of pixels against Pillow's", "at most 2 levels apart", images::formats),
    test("B10", "options of a wrong type or out of range", "refused by name, or in range", text::options),
    test(
        "B11",
        "texts at the edges of Unicode and of the tower",
        "tokens or a refusal; never cut in silence",
        text::texts,
    ),
    test(
        "B12",
        "command line: absent, unreadable, odd paths; numbers out of range",
        "exit code 2, no file left",
        command_line::misuse,
    ),
    Test {
        name: "B12-memory",
        suite: Suite::BadInput,
        what: "30 photos of 12 megapixels in one command; sparse files of 3 GB, 200 MB of no image, 89 million pixels in 35 bytes",
        rule: "memory of one photo, whatever the number; refused before it is read; at most 3 bytes a pixel and 64 MB",
        patience: 310,
        run: many::images,
    },
    mutants("M1", "damaged safetensors", |trial| attack(trial, "safetensors", 6000)),
    mutants("M2", "damaged torch files (zip and legacy)", |trial| attack(trial, "torch", 6000)),
    mutants("M3", "damaged JPEG", |trial| attack(trial, "jpeg", 10_000)),
    mutants("M4", "damaged PNG", |trial| attack(trial, "png", 6000)),
    mutants("M5", "damaged GIF", |trial| attack(trial, "gif", 6000)),
    mutants("M6", "damaged WebP", |trial| attack(trial, "webp", 5000)),
    mutants("M7", "damaged BMP", |trial| attack(trial, "bmp", 4000)),
    mutants("M8", "damaged tar shards", |trial| attack(trial, "tar", 5000)),
    mutants("M9", "damaged tables of samples", |trial| attack(trial, "table", 4000)),
    mutants("M10", "damaged class lists", |trial| attack(trial, "class-names", 2000)),
    mutants("M11", "damaged text features (npy, safetensors)", |trial| attack(trial, "text-features", 4000)),
    test("M12", "damaged prompt files", "refused, or the same prompt: never another one", |trial| {
        attack(trial, "prompt", 5000)
    }),
    test("M13", "a damaged file of a finished run", "refused, or the same content: never another one", own::runs),
    mutants("M14", "damaged TIFF", |trial| attack(trial, "tiff", 4000)),
    mutants("M15", "damaged files of a model folder: vocabulary, merges, configuration, tokenizer", |trial| {
        attack(trial, "model-folder", 500)
    }),
    mutants("M16", "damaged descriptions of classes", |trial| attack(trial, "descriptions", 1000)),
    mutants("M17", "damaged recipes", |trial| attack(trial, "recipe", 1000)),
];

fn attack(trial: &mut Trial, name: &str, count: usize) -> Result<()> {
    let count = trial.count(count);
    reader(name)?.attack(trial, count)
}

const fn test(name: &'static str, what: &'static str, rule: &'static str, run: fn(&mut Trial) -> Result<()>) -> Test {
    Test { name, suite: Suite::BadInput, what, rule, patience: 20, run }
}

const fn mutants(name: &'static str, what: &'static str, run: fn(&mut Trial) -> Result<()>) -> Test {
    test(name, what, "refused with the path, or read; no panic, no hang", run)
}
