//! The one module that touches the file system: reads and writes Run files and reports.
//! Everything it writes comes ready from the pure functions beside it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::markdown::markdown;
use crate::page::html;
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

/// Writes a Run file; an older one of that name is replaced as a whole.
pub fn write_run(run: &Run, path: &Path) -> Result<(), RunError> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    write(&partial, run.to_json().as_bytes())?;
    fs::rename(&partial, path).map_err(|error| unwritable(path, &error))
}

/// Draws everything into `folder`, which is made if need be: `index.html`, `report.md`,
/// `summary.txt` and `plots/*.svg` and `*.png`. Gives the path of the page.
pub fn render_all(run: &Run, folder: &Path) -> Result<PathBuf, RunError> {
    let plot_folder = folder.join("plots");
    fs::create_dir_all(&plot_folder).map_err(|error| unwritable(&plot_folder, &error))?;
    write(
        &folder.join("summary.txt"),
        summary(run, Style::default()).as_bytes(),
    )?;
    write(&folder.join("report.md"), markdown(run).as_bytes())?;
    draw_plots(&plots(run), &plot_folder)?;
    let page = folder.join("index.html");
    write(&page, html(run).as_bytes())?;
    Ok(page)
}

/// Half of the pictures on a second thread: pixels take longer than everything else here.
fn draw_plots(plots: &[Plot], folder: &Path) -> Result<(), RunError> {
    let draw = |plots: &[Plot]| {
        plots.iter().try_for_each(|plot| {
            write(
                &folder.join(format!("{}.svg", plot.name)),
                plot.svg.as_bytes(),
            )?;
            let image = png(&plot.svg, PNG_SCALE);
            let image = image.expect("every SVG of ours is well-formed and of a sensible size");
            write(&folder.join(format!("{}.png", plot.name)), &image)
        })
    };
    let (first, second) = plots.split_at(plots.len() / 2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| draw(first));
        draw(second)?;
        other.join().expect("drawing does not panic")
    })
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    fs::write(path, bytes).map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &std::io::Error) -> RunError {
    let file = path.display().to_string();
    RunError {
        file,
        problem: RunProblem::Unwritable(error.to_string()),
    }
}

/// Sharp enough for a page, and small enough to keep with the results.
const PNG_SCALE: f32 = 1.5;

#[cfg(test)]
mod tests {
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
        for name in ["index.html", "report.md", "summary.txt"] {
            assert!(
                page.with_file_name(name).metadata().unwrap().len() > 500,
                "{name}"
            );
        }
        let plots = fs::read_dir(page.with_file_name("plots")).unwrap().count();
        assert_eq!(
            plots,
            2 * 5 * 2 * 5,
            "latencies x kinds x formats x (group and four cells)"
        );
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
