use crate::link::LinkEnd;
use crate::process::{ChildProcess, ChildSpec, Ready};

use super::*;

/// A shell that runs this script in the group.
fn shell(group: &CpuGroup, script: &str) -> ChildProcess {
    let started = ChildProcess::start(&ChildSpec {
        program: PathBuf::from("/bin/sh"),
        args: vec!["-c".into(), script.into()],
        env: Vec::new(),
        cpus: Vec::new(),
        group: Some(group.process_file()),
        at: LinkEnd::default(),
        ready: Ready::Line("ready".to_owned()),
        ready_timeout: Duration::from_secs(20),
    });
    started.expect("a shell starts")
}

#[test]
fn a_child_is_in_its_group_from_its_first_moment_and_the_group_goes_after_it() {
    let controller = match CpuController::find() {
        Ok(controller) => controller,
        // Not everybody may.
        Err(sentence) => {
            assert!(sentence.contains("cannot be set"), "{sentence}");
            assert!(sentence.ends_with("or leave the limits out"), "{sentence}");
            return;
        }
    };
    let group = controller.group("test", 0.25).unwrap();
    let folder = group.folder.clone();
    let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
    let script = "grep moonwire /proc/self/cgroup; echo ready; while :; do :; done";
    let child = shell(&group, script);
    let said = child.output_tail();
    assert!(said[0].ends_with(&name), "{said:?}");
    let deadline = Instant::now() + Duration::from_secs(20);
    while group.throttling().unwrap().throttled_periods == 0 {
        assert!(Instant::now() < deadline, "it was never made to wait");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(group.throttling().unwrap().throttled_ns > 0);
    drop(child);
    assert!(folder.exists());
    drop(group);
    assert!(!folder.exists());
}

#[test]
fn a_group_that_is_not_there_is_told_before_anything_runs() {
    let spec = ChildSpec {
        program: PathBuf::from("/bin/true"),
        args: Vec::new(),
        env: Vec::new(),
        cpus: Vec::new(),
        group: Some(PathBuf::from("/no/such/group/cgroup.procs")),
        at: LinkEnd::default(),
        ready: Ready::Started,
        ready_timeout: Duration::from_secs(20),
    };
    let error = ChildProcess::start(&spec).unwrap_err().to_string();
    assert!(
        error.contains("the control group /no/such/group"),
        "{error}"
    );
}
