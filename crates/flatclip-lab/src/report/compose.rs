//! What a report is made of: its tables by kind, the findings of landscapes and analyses, the page.

use super::analysis::AnalysisRecord;
use super::cell::Cell;
use super::confusion::ConfusionMatrix;
use super::figures::{ece_bars, reliability, score_quantiles, top1_bars};
use super::landscape::LandscapeRecord;
use super::page::{Page, Section};
use super::runs::Run;
use super::table::Table;
use flatclip::Result;
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
    let text = "A row is a true class, a column an answer; a perfect run has only its diagonal.".into();
    Ok(Section { title: "Confusions".into(), text, figures, folded: true, ..Section::default() })
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

/// Folders directly inside, by name; a path that cannot be listed is reported when its runs are read.
fn folders_in(path: &Path) -> Vec<PathBuf> {
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
        let mut sections = vec![Section { title: "Results".into(), tables: only(main), ..Section::default() }];
        if many {
            sections[0].figures.push(top1_bars(runs));
        }
        sections.push(Section {
            title: "Calibration".into(),
            text: "How far confidence is from accuracy.".into(),
            figures: if many { vec![ece_bars(runs)] } else { reliability(runs) },
            ..Section::default()
        });
        let scores = score_quantiles(runs);
        if !scores.is_empty() {
            sections.push(Section {
                title: "Accuracy by score".into(),
                text: "Does a lower score of the selected views mean a more reliable answer?".into(),
                figures: scores,
                ..Section::default()
            });
        }
        if many {
            let text =
                "Accuracy against confidence, all seeds of a row together; a calibrated row lies on the diagonal.";
            sections.push(Section {
                title: "Reliability diagrams".into(),
                text: text.into(),
                figures: reliability(runs),
                folded: true,
                ..Section::default()
            });
        }
        if !details.is_empty() {
            let title = format!("Every run ({})", runs.len());
            sections.push(Section { title, tables: only(details), folded: true, ..Section::default() });
        }
        let failures: Vec<String> = runs
            .iter()
            .flat_map(|run| {
                run.summary.failures.iter().map(|(id, why)| format!("{}: {id}: {why}", run.provenance.dataset))
            })
            .collect();
        if !failures.is_empty() {
            let mut table = Table::new("Samples that could not be answered", ["sample"]);
            failures.into_iter().for_each(|line| table.push(vec![Cell::text(line)]));
            sections.push(Section { title: "Bad samples".into(), tables: vec![table], ..Section::default() });
        }
        sections.extend(findings);
        if confusions {
            sections.push(confusion_section(runs)?);
        }
        sections.push(Self::provenance(runs));
        Ok(Self { title: "flatclip report".into(), sections, ..Self::default() })
    }
}
