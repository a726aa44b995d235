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
        pauses: None,
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
    // The kernel counts the period at its end, and the time only when the group goes on.
    while group.throttling().unwrap().throttled_ns == 0 {
        assert!(Instant::now() < deadline, "it was never made to wait");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(group.throttling().unwrap().throttled_periods > 0);
    drop(child);
    assert!(folder.exists());
    drop(group);
    assert!(!folder.exists());
}

#[test]
fn both_versions_are_given_their_quota() {
    let place = tempfile::tempdir().unwrap();
    let ration = |version, processors| {
        let folder = place.path().join("group");
        fs::create_dir(&folder).unwrap();
        let group = CpuGroup {
            version,
            folder: folder.clone(),
            processors,
            kept: None,
        };
        group.ration().unwrap();
        let files = fs::read_dir(&folder).unwrap().flatten();
        let mut files: Vec<(String, String)> = files
            .map(|it| {
                let name = it.file_name().into_string().unwrap();
                (name, fs::read_to_string(it.path()).unwrap())
            })
            .collect();
        files.sort();
        fs::remove_dir_all(&folder).unwrap();
        files.into_iter().map(|(name, text)| name + "=" + &text)
    };
    let all = |version, processors| ration(version, processors).collect::<Vec<_>>().join(" ");
    assert_eq!(
        all(Version::One, 1.5),
        "cpu.cfs_period_us=100000 cpu.cfs_quota_us=150000"
    );
    assert_eq!(all(Version::Two, 0.01), "cpu.max=1000 100000");
}

#[test]
fn limits_are_read_as_docker_has_them() {
    for (text, limit) in [
        ("1.5", Some(1.5)),
        (" 10 ", Some(10.0)),
        ("0", None),
        ("", None),
    ] {
        assert_eq!(CpuLimits::parse(text), Ok(limit), "{text}");
    }
    for text in ["two", "-1", "0.001", "NaN", "inf", "1e9", "50%"] {
        let clause = CpuLimits::parse(text).unwrap_err();
        assert!(clause.contains("processors such as 1.5"), "{clause}");
    }
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
        pauses: None,
        ready: Ready::Started,
        ready_timeout: Duration::from_secs(20),
    };
    let error = ChildProcess::start(&spec).unwrap_err().to_string();
    assert!(
        error.contains("the control group /no/such/group"),
        "{error}"
    );
}
