//! A new folder of contestants is a reason to build again.

#![allow(clippy::print_stdout, reason = "this is how a build script speaks")]

fn main() {
    println!("cargo::rerun-if-changed=../../lab/contestants");
}
