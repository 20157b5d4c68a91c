//! Which views are kept: images whose answer selecting views fixes, and one that it breaks.

use super::answers::{Answers, Row, Rule, Shown};
use super::protocol::Protocol;
use super::tuning::Tuned;
use super::{DOMAINS, Model};
use crate::report::data_address;
use flatclip::Result;
use flatclip_pocket::CLASS_NAMES;

/// Views of a sheet that stand in a row, and their pixels.
const COLUMNS: usize = 8;
const SIDE: usize = 64;

/// Captions and sheets, and how often selecting fixes and breaks.
pub(super) struct Examples {
    pub(super) images: Vec<(String, String)>,
    pub(super) sentence: String,
}

/// Two shifted images, of different styles where there are, that one view answers wrongly and STSS rightly, and one the other way
/// round; the first of their kind, not the nicest.
pub(super) fn examples(
    model: &Model,
    tuned: &Tuned,
    answers: &Answers,
    rows: (&Row, &Row),
    protocol: &Protocol,
) -> Result<Examples> {
    let (one, stss) = rows;
    let draw = |row: &Row, image: usize| row.right[0][image];
    let all = || answers.shown.iter().enumerate().filter(|(_, shown)| shown.domain > 0);
    let rescued: Vec<&Shown> = all().filter(|&(i, _)| !draw(one, i) && draw(stss, i)).map(|(_, s)| s).collect();
    let broken: Vec<&Shown> = all().filter(|&(i, _)| draw(one, i) && !draw(stss, i)).map(|(_, s)| s).collect();
    let mut chosen: Vec<(&str, &Shown)> = rescued.first().map(|&s| ("Rescued", s)).into_iter().collect();
    let other = rescued.iter().find(|s| s.domain != rescued[0].domain).or(rescued.get(1));
    chosen.extend(other.map(|&s| ("Rescued", s)));
    chosen.extend(broken.first().map(|&s| ("Broken", s)));

    let classifier = Rule::Stss.classifier(model, &tuned.prompt, protocol.views)?;
    let single = Rule::One.classifier(model, &tuned.prompt, 1)?;
    let mut images = Vec::new();
    for (what, shown) in chosen {
        let image = shown.image(protocol)?;
        let (answer, alone) = (classifier.answer(&image)?, single.answer(&image)?);
        let caption = format!(
            "{what} ({}): a {}. One view says {}, the {} kept views say {}. Below each view its score (the lowest are kept, framed) and what it \
             says alone.",
            DOMAINS[shown.domain],
            CLASS_NAMES[shown.label],
            alone.label(),
            answer.kept().len(),
            answer.label(),
        );
        images.push((caption, data_address(&classifier.view_sheet(&image, &answer, COLUMNS, SIDE)?)));
    }
    let total = all().count();
    let sentence = format!(
        "Of {total} shifted images, keeping the {} steadiest of {} views of SAPT's prompt ({} shots) rescues {} answers that one view gets wrong, \
         and breaks {} that it gets right.",
        (super::protocol::FRACTION * protocol.views as f64) as usize,
        protocol.views,
        tuned.shots,
        rescued.len(),
        broken.len(),
    );
    Ok(Examples { images, sentence })
}
