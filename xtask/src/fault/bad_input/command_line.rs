//! Misuse of the command line.

use crate::fault::Trial;
use crate::fault::program::Program;
use anyhow::{Result, ensure};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

/// Arguments that must be refused, and words of the refusal.
const REFUSED: &[(&[&str], &str)] = &[
    (&["predict", "absent.jpg", "--classes", "cat,dog"], "absent.jpg"),
    (&["predict", "empty-folder", "--classes", "cat,dog"], "empty-folder"),
    (&["predict", "good.png", "--classes-file", "empty-folder"], "empty-folder"),
    (&["predict", "good.png", "--model", "absent", "--classes", "cat,dog"], "absent"),
    (&["predict", "good.png", "--model", "empty-folder", "--classes", "cat,dog"], "empty-folder"),
    (&["predict", "good.png", "--model", "good.png", "--classes", "cat,dog"], "good.png"),
    (&["predict", "good.png", "--prompt", "good.png", "--classes", "cat,dog"], "good.png"),
    (&["predict", "good.png", "--classes", "cat,dog", "--views", "9223372036854775807"], "views"),
    (&["predict", "good.png", "--classes", "cat,dog", "--views", "0"], "views"),
    (&["predict", "good.png", "--classes", "cat,dog", "--threads", "5000"], "threads"),
    (&["predict", "good.png", "--classes", "cat,dog", "--method", "stsss"], "stss"),
    (&["predict", "good.png", "--classes", "cat,dog", "--method", "stss", "--set", "radius=-1"], "radius"),
    (&["predict", "good.png", "--classes", "cat,dog", "--method", "stss", "--set", "bank=9223372036854775807"], "bank"),
    (&["eval", "--data", "folder:absent", "--out", "run"], "absent"),
    (&["eval", "--data", "csv:empty.csv", "--out", "run"], "empty.csv"),
    (&["eval", "--data", "wds:empty.tar", "--out", "run"], "empty.tar"),
    (&["eval", "--data", "nonsense:x", "--out", "run"], "nonsense"),
    (&["eval", "--data", "pocket:sketch", "--limit", "0", "--out", "run"], "limit"),
    (&["eval", "--data", "pocket:sketch", "--limit", "2", "--method", "zero-shot", "--out", "good.png"], "good.png"),
    (&["eval", "--data", "pocket:sketch", "--shard", "3/2", "--out", "run"], "shard"),
    (&["tune", "--method", "coop", "--data", "folder:absent", "--shots", "1", "--out", "run"], "absent"),
    (&["tune", "--method", "coop", "--data", "pocket:photo", "--shots", "0", "--out", "run"], "shots"),
    (&["landscape", "--data", "pocket:photo", "--points", "9223372036854775807", "--out", "run"], "points"),
    (&["report", "empty-folder"], "empty-folder"),
    (&["convert", "good.png", "out.safetensors"], "good.png"),
    (&["embed", "absent.jpg", "--out", "features.npy"], "absent.jpg"),
    (&["nonsense"], "nonsense"),
];

/// B12.
pub(super) fn misuse(trial: &mut Trial) -> Result<()> {
    let program = Program::new(&trial.binary, &trial.folder);
    let folder = trial.folder.clone();
    std::fs::create_dir(folder.join("empty-folder"))?;
    std::fs::write(folder.join("empty.csv"), "")?;
    std::fs::write(folder.join("empty.tar"), "")?;
    let png = crate::fault::readers::corpus("png")?.remove(0).1;
    std::fs::write(folder.join("good.png"), &png)?;
    for (arguments, words) in trial.some(REFUSED) {
        trial.case(&arguments.join(" "), || {
            let ended = program.refuses(arguments, words)?;
            ensure!(ended.seconds < 20.0, "took {:.0} s", ended.seconds);
            ensure!(!folder.join("run/summary.json").exists(), "a summary was written");
            let _ = std::fs::remove_dir_all(folder.join("run"));
            Ok(())
        });
    }
    let names: [&[u8]; 5] =
        [b"not-utf-8-\xff\xfe.png", b"escape\x1b[31m.png", b"line\nfeed.png", b"with space.png", b"-dash.png"];
    for name in trial.some(&names) {
        let file = OsString::from_vec(name.to_vec());
        std::fs::write(folder.join(&file), &png)?;
        let mut path = OsString::from("./");
        path.push(&file);
        for json in [false, true] {
            let mut arguments: Vec<OsString> = vec!["predict".into(), path.clone()];
            arguments.extend(["--classes", "cat,dog"].map(OsString::from));
            arguments.extend(json.then(|| OsString::from("--json")));
            trial.case(&format!("an image called {:?}, json {json}", file), || {
                let ended = program.works(&arguments)?;
                ensure!(
                    !ended.stdout.contains(&0x1b) || !name.contains(&0x1b),
                    "an escape of a name reached the terminal"
                );
                Ok(())
            });
        }
    }
    Ok(())
}
