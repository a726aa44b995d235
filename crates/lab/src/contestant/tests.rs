use std::path::Path;

use super::file::names_in_braces;
use super::*;

fn around() -> Surroundings {
    let (moonwire, peers) = (Path::new("/bin/moonwire"), Path::new("/peers"));
    Surroundings {
        processors: 8,
        ports: [5083, 5084, 5085, 5086],
        backends: vec!["127.0.0.1:7001".into(), "127.0.0.1:7002".into()],
        ..Surroundings::new(moonwire, peers, Path::new("/results"))
    }
}

fn doubling(id: &str) -> Vec<Contestant> {
    let roster = Roster::load(None).unwrap();
    roster
        .servers("payload-doubling", &[id.to_owned()])
        .unwrap()
}

fn assert_filled(contestant: &Contestant, text: &str) {
    let left: Vec<&str> = names_in_braces(text).collect();
    assert!(left.is_empty(), "{}: {left:?} in {text}", contestant.name());
}

#[test]
fn every_template_is_filled_and_every_file_is_there() {
    for contestant in Roster::load(None).unwrap().contestants() {
        for tls in [false, true] {
            let urls = [
                Some(contestant.url(tls, &around())),
                contestant.amplify_url(tls, &around()),
            ];
            for url in urls.into_iter().flatten() {
                let scheme = if tls { "wss://" } else { "ws://" };
                assert!(url.starts_with(scheme), "{url}");
                assert_filled(contestant, &url);
            }
            for child in contestant.children(tls, &around(), &[1]) {
                for arg in &child.args {
                    assert_filled(contestant, arg.to_str().unwrap());
                }
            }
        }
        let files = contestant.files(&around());
        for name in &contestant.file.templates {
            let (_, text) = files.iter().find(|(file, _)| file == name).unwrap();
            assert_filled(contestant, text);
        }
    }
}

#[test]
fn a_shipped_proxy_names_both_backends() {
    let roster = Roster::load(None).unwrap();
    let is_proxy = |one: &&Contestant| one.kind() == Kind::Proxy && one.has_process();
    for proxy in roster.contestants().iter().filter(is_proxy) {
        let children = proxy.children(false, &around(), &[]);
        let env = |child: &ChildSpec| child.env.iter().map(|(_, value)| value.clone()).collect();
        let of_child = |child: &ChildSpec| [child.args.clone(), env(child)].concat();
        let args = children.iter().flat_map(of_child);
        let args = args.map(|arg| arg.to_string_lossy().into_owned());
        let files = proxy.files(&around()).into_iter().map(|(_, text)| text);
        let all: String = args.chain(files).collect();
        for port in ["7001", "7002"] {
            assert!(all.contains(port), "{} {port}: {all}", proxy.name());
        }
    }
}

#[test]
fn the_variants_are_those_of_the_published_benchmark() {
    let connections: Vec<_> = doubling("moonwire")
        .iter()
        .map(Contestant::connections)
        .collect();
    assert_eq!(connections, [Some(120), Some(120), Some(96), Some(96)]);
    let threads: Vec<OsString> = doubling("uwebsockets-js")
        .iter()
        .map(|one| one.children(false, &around(), &[])[0].args[3].clone())
        .collect();
    assert_eq!(threads, ["1", "8"]);
}

#[test]
fn what_is_not_installed_says_how_it_is() {
    let contestant = &doubling("uwebsockets-js")[0];
    let sentence = contestant.version(&around()).unwrap_err();
    let expected = "install it with `cargo xtask peers uwebsockets-js`";
    assert!(sentence.ends_with(expected), "{sentence}");
}
