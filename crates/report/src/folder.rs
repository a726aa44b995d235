//! The one module that touches the file system: reads and writes Run files and reports.
//! Everything it writes comes ready from the pure functions beside it.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::cell_report::{CELL_REPORT_MARK, cell_reports};
use crate::junit::junit;
use crate::markdown::markdown;
use crate::page::html;
use crate::palette::FONTS;
use crate::plots::{Plot, plots, png};
use crate::run::{Run, RunError, RunProblem};
use crate::summary::{Style, summary};

/// Reads a Run file.
pub fn read_run(path: &Path) -> Result<Run, RunError> {
    let file = path.display().to_string();
    match fs::read_to_string(path) {
        Ok(text) => Run::parse(&text, &file),
        Err(error) => Err(RunError {
            file,
            problem: RunProblem::Unreadable(error.to_string()),
        }),
    }
}

/// Writes a Run file; an older one of that name is replaced as a whole. A link is followed, and
/// what is no file (a device, a pipe) is written to and never replaced.
pub fn write_run(run: &Run, path: &Path) -> Result<(), RunError> {
    let json = run.to_json();
    if !is_replaced(path) {
        return write(path, json.as_bytes());
    }
    let partial = partial(path);
    write(&partial, json.as_bytes())?;
    fs::rename(&partial, path).map_err(|error| unwritable(path, &error))
}

/// Whether `write_run` will find a place at `path`, to be asked before a run. What is there is left
/// as it is, and a pipe is not opened: that would wait for its reader, or end what it reads.
pub fn check_run_place(path: &Path) -> Result<(), RunError> {
    let check = || match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(found) if found.is_file() => {
            OpenOptions::new().append(true).open(path)?;
            if is_replaced(path) {
                probe(&partial(path))?;
            }
            Ok(())
        }
        Ok(_) => Ok(()),
        Err(_) if is_replaced(path) => probe(&partial(path)),
        // A link to a file that is yet to be made.
        Err(_) => probe(path),
    };
    check().map_err(|error| unwritable(path, &error))
}

/// A link keeps its place as much as a device does, so only plain files are replaced.
fn is_replaced(path: &Path) -> bool {
    match fs::symlink_metadata(path) {
        Ok(found) => found.is_file(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Where a Run file is written before it takes the place of an older one.
fn partial(path: &Path) -> PathBuf {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    PathBuf::from(partial)
}

/// Makes a file and takes it away again; one that is there is only opened.
fn probe(path: &Path) -> io::Result<()> {
    match OpenOptions::new().append(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            OpenOptions::new().append(true).create(true).open(path)?;
            // Not the link that may lead to it.
            fs::remove_file(fs::canonicalize(path)?)
        }
        other => other.map(drop),
    }
}

/// Draws everything into `folder`, which is made if need be: `index.html`, `report.md`,
/// `summary.txt`, `junit.xml`, `plots/*.svg` and `*.png`, and `cells/<cell>/report.md` of each of
/// several cells. Gives the path of the page.
pub fn render_all(run: &Run, folder: &Path) -> Result<PathBuf, RunError> {
    check_ours(folder)?;
    let plot_folder = folder.join("plots");
    fs::create_dir_all(&plot_folder).map_err(|error| unwritable(&plot_folder, &error))?;
    write(
        &folder.join("summary.txt"),
        summary(run, Style::default()).as_bytes(),
    )?;
    write(&folder.join("report.md"), markdown(run).as_bytes())?;
    write_cell_reports(run, folder)?;
    write_junit(run, &folder.join("junit.xml"))?;
    let plots = plots(run);
    draw_plots(&plots, &plot_folder)?;
    remove_older(&plots, &plot_folder);
    let page = folder.join("index.html");
    write(&page, html(run).as_bytes())?;
    Ok(page)
}

/// Refuses to take the place of files that somebody else has made.
fn check_ours(folder: &Path) -> Result<(), RunError> {
    for (name, mark) in OUR_MARKS {
        let path = folder.join(name);
        let text = fs::read(&path).unwrap_or_default();
        if !text.is_empty() && !String::from_utf8_lossy(&text).contains(mark) {
            let file = path.display().to_string();
            let sentence = "it is there and no report of ours: give another folder with --out";
            return Err(RunError {
                file,
                problem: RunProblem::Unwritable(sentence.to_owned()),
            });
        }
    }
    Ok(())
}

/// Writes the report of each of several cells into `cells/<cell>/report.md` of `folder`.
pub fn write_cell_reports(run: &Run, folder: &Path) -> Result<(), RunError> {
    let cells = folder.join("cells");
    let mut names = HashSet::new();
    for (cell, report) in cell_reports(run) {
        let folder = cells.join(&cell);
        fs::create_dir_all(&folder).map_err(|error| unwritable(&folder, &error))?;
        write(&folder.join("report.md"), report.as_bytes())?;
        names.insert(OsString::from(cell));
    }
    remove_older_reports(&names, &cells);
    Ok(())
}

/// Takes away the reports of cells that an earlier run has left in the folder, and keeps what else
/// is with them.
fn remove_older_reports(names: &HashSet<OsString>, cells: &Path) {
    let found = fs::read_dir(cells).into_iter().flatten().flatten();
    for folder in found.filter(|it| !names.contains(&it.file_name())) {
        let report = folder.path().join("report.md");
        let text = fs::read_to_string(&report);
        if text.is_ok_and(|text| text.contains(CELL_REPORT_MARK)) {
            // One that cannot be removed is no reason to lose the others; nor is a folder that has
            // more in it.
            let _ = fs::remove_file(&report);
            let _ = fs::remove_dir(folder.path());
        }
    }
}

/// Writes a run as JUnit XML.
pub fn write_junit(run: &Run, path: &Path) -> Result<(), RunError> {
    write(path, junit(run).as_bytes())
}

/// Takes away pictures that an earlier run has left in the folder: whoever looks at all of them
/// would take them for those of this one. What is not known for ours stays.
fn remove_older(plots: &[Plot], folder: &Path) {
    let names: HashSet<&str> = plots.iter().map(|plot| plot.name.as_str()).collect();
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    for path in files.map(|file| file.path()) {
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let is_other = stem.is_some_and(|stem| !names.contains(stem));
        if is_other && path.extension().is_some_and(|it| it == "svg") && is_of_ours(&path) {
            // One that cannot be removed is no reason to lose the report.
            let _ = fs::remove_file(&path);
            let _ = fs::remove_file(path.with_extension("png"));
        }
    }
}

fn is_of_ours(svg: &Path) -> bool {
    let mut head = Vec::new();
    let read = fs::File::open(svg).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    read.is_ok() && String::from_utf8_lossy(&head).contains(FONTS)
}

/// On all processors, because pixels take longer than everything else here. Whoever is done takes
/// the next picture: the first ones are the large ones.
fn draw_plots(plots: &[Plot], folder: &Path) -> Result<(), RunError> {
    let next = AtomicUsize::new(0);
    let draw = || {
        while let Some(plot) = plots.get(next.fetch_add(1, Ordering::Relaxed)) {
            draw_plot(plot, folder)?;
        }
        Ok(())
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let others = 1..processors.min(DRAWING_THREADS_MAX);
        let others: Vec<_> = others.map(|_| scope.spawn(draw)).collect();
        let own = draw();
        let others = others.into_iter().map(|other| other.join());
        let others = others.map(|it| it.expect("drawing does not panic"));
        others.fold(own, Result::and)
    })
}

fn draw_plot(plot: &Plot, folder: &Path) -> Result<(), RunError> {
    let svg = folder.join(format!("{}.svg", plot.name));
    write(&svg, plot.svg.as_bytes())?;
    let image = png(&plot.svg, PNG_SCALE);
    let image = image.expect("every SVG of ours is well-formed, and large ones are scaled");
    write(&folder.join(format!("{}.png", plot.name)), &image)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    fs::write(path, bytes).map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &io::Error) -> RunError {
    let file = path.display().to_string();
    RunError {
        file,
        problem: RunProblem::Unwritable(error.to_string()),
    }
}

/// What each of them has in it, whatever was measured.
const OUR_MARKS: [(&str, &str); 3] = [
    ("index.html", "moonwire"),
    ("report.md", "## How to read this"),
    ("junit.xml", "command line"),
];
/// Of an SVG, enough to have the attributes of its root.
const HEAD_BYTES: u64 = 512;
/// Sharp enough for a page, and small enough to keep with the results.
const PNG_SCALE: f32 = 1.5;
/// Each may hold a picture of the largest size.
const DRAWING_THREADS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt, symlink};
    use std::process::Command;

    use super::*;
    use crate::sample;

    #[test]
    fn a_run_comes_back_from_its_folder_and_draws_everything() {
        let folder = tempfile::tempdir().unwrap();
        let run = sample::bench(5, 200);
        let file = folder.path().join("run.json");
        write_run(&run, &file).unwrap();
        let read = read_run(&file).unwrap();
        assert_eq!(read, run);
        let page = render_all(&read, &folder.path().join("report")).unwrap();
        for name in ["index.html", "report.md", "summary.txt", "junit.xml"] {
            assert!(
                page.with_file_name(name).metadata().unwrap().len() > 500,
                "{name}"
            );
        }
        let cell = "cells/c1000_b1_n5_w1000_s1024_r4_l20ms/report.md";
        let report = fs::read_to_string(page.with_file_name(cell)).unwrap();
        assert!(report.contains("1,000 clients"), "{report}");
        let plots = fs::read_dir(page.with_file_name("plots")).unwrap().count();
        // Those of an earlier run go with the next one; a picture of somebody else stays.
        let plot = |name: &str| page.with_file_name("plots").join(name);
        let picture = |text: &str| format!("<svg font-family=\"{text}\"/>");
        fs::write(plot("earlier.svg"), picture(FONTS)).unwrap();
        fs::write(plot("earlier.png"), "").unwrap();
        fs::write(plot("theirs.svg"), picture("Arial")).unwrap();
        let cells = page.with_file_name("cells");
        for (name, text) in [("earlier", report.as_str()), ("theirs", "# notes")] {
            fs::create_dir(cells.join(name)).unwrap();
            fs::write(cells.join(name).join("report.md"), text).unwrap();
        }
        render_all(&read, &folder.path().join("report")).unwrap();
        assert!(!cells.join("earlier").exists() && cells.join("theirs/report.md").exists());
        assert!(!plot("earlier.svg").exists() && !plot("earlier.png").exists());
        fs::remove_file(plot("theirs.svg")).unwrap();
        assert_eq!(
            plots,
            2 * 5 * 2 * 5,
            "latencies x kinds x formats x (group and four cells)"
        );
    }

    #[test]
    fn older_files_are_still_drawn() {
        let older = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/golden/runs");
        let files = fs::read_dir(older).unwrap();
        let drawn = files.map(|file| {
            let file = file.unwrap().path();
            let run = read_run(&file).unwrap();
            let cells = run.cells().len();
            let whole = [summary(&run, Style::default()), markdown(&run), html(&run)];
            assert!(whole.iter().all(|text| text.len() > 500), "{file:?}");
            let reports: Vec<_> = cell_reports(&run).collect();
            assert_eq!(reports.len(), if run.is_bench() { cells } else { 0 });
            assert!(reports.iter().all(|(_, report)| report.len() > 500));
            cells
        });
        assert!(drawn.sum::<usize>() > 6);
    }

    #[test]
    fn a_link_is_followed_and_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (link, target) = (folder.path().join("link"), folder.path().join("target"));
        symlink("target", &link).unwrap();
        for _ in ["a target that is not there yet", "one that is"] {
            write_run(&Run::default(), &link).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(read_run(&target).unwrap(), Run::default());
        }
    }

    #[test]
    fn a_pipe_is_written_to_and_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        // Open for both, so that neither side waits for the other; the run fits into a pipe.
        let reader = OpenOptions::new().read(true).write(true).open(&fifo);
        write_run(&Run::default(), &fifo).unwrap();
        let kind = fs::symlink_metadata(&fifo).unwrap().file_type();
        assert!(kind.is_fifo(), "{kind:?}");
        let mut start = [0; 1];
        reader.unwrap().read_exact(&mut start).unwrap();
        assert_eq!(&start, b"{");
    }

    #[test]
    fn a_place_is_checked_and_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("old"), "kept").unwrap();
        symlink("old", at("link")).unwrap();
        symlink("new", at("dangling")).unwrap();
        assert!(
            Command::new("mkfifo")
                .arg(at("fifo"))
                .status()
                .unwrap()
                .success()
        );
        for name in ["old", "link", "dangling", "fifo", "none"] {
            check_run_place(&at(name)).unwrap_or_else(|error| panic!("{error}"));
        }
        assert_eq!(fs::read_to_string(at("link")).unwrap(), "kept");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
        // The place of the partial file is taken by what cannot be written.
        fs::create_dir(at("old.partial")).unwrap();
        for wrong in [at("old"), at("old.partial"), at("no/where")] {
            let error = check_run_place(&wrong).unwrap_err().to_string();
            assert!(error.contains("cannot be written"), "{error}");
        }
    }

    #[test]
    fn files_that_cannot_be_read_or_written_are_named() {
        let error = read_run(Path::new("/nowhere/run.json"))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("/nowhere/run.json cannot be read: No such file"),
            "{error}"
        );
        let error = write_run(&Run::default(), Path::new("/nowhere/run.json")).unwrap_err();
        assert!(error.to_string().contains("cannot be written"), "{error}");
    }
}
