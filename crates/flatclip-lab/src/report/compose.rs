//! What a report is made of: its tables by kind, the findings of landscapes and analyses, the page.

use super::{AnalysisRecord, Cell, ConfusionMatrix, LandscapeRecord, Page, Run, Section, Table};
use super::{ece_bars, reliability, score_quantiles, top1_bars};
use flatclip::{Error, Hint, Result};
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// What a table is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// Methods by data sets.
    Methods,
    /// Every run.
    Runs,
    /// Published numbers next to ours.
    Paper,
    /// Differences on the same samples.
    Paired,
    /// Calibration at a temperature.
    Temperature,
    /// Classes taken for others.
    Confusion,
    /// Landscapes and analyses.
    Findings,
}

impl TableKind {
    /// Every kind.
    pub const ALL: [Self; 7] =
        [Self::Methods, Self::Runs, Self::Paper, Self::Paired, Self::Temperature, Self::Confusion, Self::Findings];

    /// As options and file names have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Methods => "methods",
            Self::Runs => "runs",
            Self::Paper => "paper",
            Self::Paired => "paired",
            Self::Temperature => "temperature",
            Self::Confusion => "confusion",
            Self::Findings => "findings",
        }
    }
}

fn confusion_section(runs: &[Run]) -> Result<Section> {
    let figures = ConfusionMatrix::of_all(runs)?.iter().map(ConfusionMatrix::figure).collect();
    let text = "A row is a true class, a column an answer; a perfect run has only its diagonal.";
    Ok(Section { figures, folded: true, ..Section::new("Confusions", text) })
}

/// Landscapes and analyses in the given folders, and the paths that are neither.
pub fn findings(paths: &[PathBuf]) -> Result<(Vec<Section>, Vec<PathBuf>)> {
    let (mut sections, mut others) = (Vec::new(), Vec::new());
    for path in paths {
        let found = sections_of(path)?;
        if found.is_empty() {
            others.push(path.clone());
            for folder in folders_in(path) {
                sections.extend(sections_of(&folder)?);
            }
        }
        sections.extend(found);
    }
    Ok((sections, others))
}

fn sections_of(folder: &Path) -> Result<Vec<Section>> {
    let name = folder.file_name().map_or_else(String::new, |name| format!(" ({})", name.to_string_lossy()));
    let landscape = LandscapeRecord::read(folder)?.map(|record| record.section(&format!("Landscape{name}")));
    let analysis = AnalysisRecord::read(folder)?.map(|record| record.sections());
    Ok(landscape.into_iter().chain(analysis.into_iter().flatten()).collect())
}

/// The record of a landscape or an analysis; `None` when the folder holds none. `what` is made by the command `again`.
pub(super) fn read_record<T: DeserializeOwned>(
    folder: &Path,
    file: &str,
    what: &str,
    again: &'static str,
) -> Result<Option<T>> {
    let path = folder.join(file);
    if !path.is_file() {
        return Ok(None);
    }
    let bytes = std::fs::read(&path).map_err(Error::io(&path))?;
    serde_json::from_slice(&bytes).map(Some).map_err(|e| {
        let reason = format!("not {what} of this version of flatclip ({e})");
        Error::Run { path, reason }.with_hint(Hint::Again(again))
    })
}

/// Folders directly inside, by name; a path that cannot be listed is reported when its runs are read.
pub(crate) fn folders_in(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

impl Page {
    /// The page of a report: what runs answered, then landscapes and analyses, then provenance.
    pub fn of_report(
        runs: &[Run],
        tables: Vec<(TableKind, Table)>,
        findings: Vec<Section>,
        confusions: bool,
    ) -> Result<Self> {
        if runs.is_empty() {
            return Ok(Self { title: "flatclip report".into(), sections: findings, ..Self::default() });
        }
        // A single run has no details to fold away.
        let many = runs.len() > 1;
        let main = |kind: TableKind| {
            matches!(kind, TableKind::Methods | TableKind::Paper) || (kind == TableKind::Runs && !many)
        };
        let (main, details): (Vec<_>, Vec<_>) = tables.into_iter().partition(|(kind, _)| main(*kind));
        let only = |tables: Vec<(TableKind, Table)>| tables.into_iter().map(|(_, table)| table).collect::<Vec<Table>>();
        let mut sections = vec![Section { tables: only(main), ..Section::new("Results", "") }];
        if many {
            sections[0].figures.push(top1_bars(runs));
        }
        let figures = if many { vec![ece_bars(runs)] } else { reliability(runs) };
        sections.push(Section { figures, ..Section::new("Calibration", "How far confidence is from accuracy.") });
        let scores = score_quantiles(runs);
        if !scores.is_empty() {
            let text = "Does a lower score of the selected views mean a more reliable answer?";
            sections.push(Section { figures: scores, ..Section::new("Accuracy by score", text) });
        }
        if many {
            let text =
                "Accuracy against confidence, all seeds of a row together; a calibrated row lies on the diagonal.";
            let section = Section::new("Reliability diagrams", text);
            sections.push(Section { figures: reliability(runs), folded: true, ..section });
        }
        if !details.is_empty() {
            let section = Section::new(format!("Every run ({})", runs.len()), "");
            sections.push(Section { tables: only(details), folded: true, ..section });
        }
        let failures = runs.iter().flat_map(|run| {
            run.summary.failures.iter().map(|(id, why)| format!("{}: {id}: {why}", run.provenance.dataset))
        });
        let table = Table::of("Samples that could not be answered", failures).column("sample", |line| Cell::text(line));
        let table = table.table();
        if !table.rows.is_empty() {
            sections.push(Section { tables: vec![table], ..Section::new("Bad samples", "") });
        }
        sections.extend(findings);
        if confusions {
            sections.push(confusion_section(runs)?);
        }
        sections.push(Self::provenance(runs));
        Ok(Self { title: "flatclip report".into(), sections, ..Self::default() })
    }
}
