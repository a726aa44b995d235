//! The JSON schema of the Run file, out of the types that write it.

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::run::RunOut;

/// The schema, indented, ending in a line feed: JSON Schema, draft 2020-12.
pub fn schema() -> String {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<RunOut<'_>>();
    schema.insert("title".to_owned(), "Run file of moonwire".into());
    // A load run is one cell at the top of the file.
    let shapes = json_schema!({
        "if": { "properties": { "kind": { "const": "load" } } },
        "then": { "$ref": "#/$defs/Cell" },
        "else": { "required": ["verdict", "verdict_reasons", "cells"] },
    });
    for (key, value) in shapes.as_object().into_iter().flatten() {
        schema.insert(key.clone(), value.clone());
    }
    let mut text = serde_json::to_string_pretty(&schema)
        .expect("a schema holds nothing that JSON cannot: keys are strings");
    text.push('\n');
    text
}

/// A type whose file has the shape of another one.
macro_rules! shaped {
    ($($type:ty, $name:literal, $shape:ty, $what:literal;)*) => {
        $(impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                let mut schema = <$shape>::json_schema(generator);
                schema.insert("description".to_owned(), $what.into());
                schema
            }
        })*
    };
}
shaped! {
    crate::histogram::Histogram, "Histogram", crate::histogram::Encoded,
        "A histogram: exact figures, and the buckets as HdrHistogram's V2 in base64.";
    crate::time_block::TimeBlock, "TimeBlock", crate::histogram::Encoded,
        "The response times of one block of time, as a histogram.";
    crate::latency_buckets::LatencyBuckets, "LatencyBuckets", String,
        "Counts in coarse buckets: pairs of bucket and count, such as 72:3 73:118.";
    crate::stage::Stage, "Stage", crate::stage::StageOut<'static>,
        "The messages that were intended in one stage.";
    crate::cell::Cell, "Cell", crate::cell::CellOut<'static>,
        "Everything measured for one set of parameters.";
    crate::fan_out::FanOut, "FanOut", crate::fan_out::FanOutOut<'static>,
        "Who heard what was published, and how soon, from the intended send time.";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::battle::tests::run;
    use crate::environment::Server;
    use crate::fan_out::FanOut;
    use crate::run::{Content, Run};
    use crate::sample;

    fn parsed() -> Value {
        serde_json::from_str(&schema()).unwrap()
    }

    fn faults(file: &str) -> Vec<String> {
        let validator = jsonschema::validator_for(&parsed()).unwrap();
        let file: Value = serde_json::from_str(file).unwrap();
        let errors = validator.iter_errors(&file);
        errors
            .map(|it| format!("{}: {it}", it.instance_path()))
            .collect()
    }

    fn runs() -> Vec<Run> {
        let mut battle = run(&[("a", 1.0), ("b", 2.0)], 2);
        let Content::Bench(cells) = &mut battle.content else {
            panic!("a bench")
        };
        cells[0].fan_out = Some(FanOut::default());
        cells[0].server = Some(Server::default());
        cells[0].recovery.time.record(5_000_000);
        cells[0].intervals = sample::cell(10, 1.0, 3, 1).intervals;
        let cell = sample::cell(100, 1.0, 4, 1);
        let load = Run {
            content: Content::Load(Box::new(cell)),
            ..sample::bench(1, 1000)
        };
        vec![sample::bench(3, 500), battle, load, Run::default()]
    }

    #[test]
    fn files_of_every_kind_are_as_the_schema_says() {
        for run in runs() {
            assert_eq!(faults(&run.to_json()), [""; 0]);
        }
    }

    #[test]
    fn real_files_are_as_the_schema_says() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/golden/runs");
        let mut names = BTreeSet::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let file = std::fs::read_to_string(&path).unwrap();
            assert_eq!(faults(&file), [""; 0], "{}", path.display());
            let run = crate::read_run(&path).unwrap();
            assert_eq!(faults(&run.to_json()), [""; 0], "{}", path.display());
            names.insert(path.file_stem().unwrap().to_string_lossy().into_owned());
        }
        let all = ["battle", "bench", "doubling", "fan-out", "find-max", "load"];
        assert_eq!(names, all.map(str::to_owned).into());
    }

    #[test]
    fn what_is_missing_or_of_another_type_is_a_fault() {
        let [_, battle, load, _] = runs().try_into().unwrap();
        let faults_with = |run: &Run, change: fn(&mut Value)| {
            let mut file = serde_json::from_str(&run.to_json()).unwrap();
            change(&mut file);
            faults(&file.to_string()).len()
        };
        assert!(faults_with(&battle, |it| it["cells"][0]["round"] = "one".into()) > 0);
        assert!(faults_with(&battle, |it| it["kind"] = "load".into()) > 0);
        let without = |it: &mut Value| it.as_object_mut().unwrap().remove("latency");
        assert!(without(&mut serde_json::from_str(&load.to_json()).unwrap()).is_some());
        assert!(
            faults_with(&load, |it| {
                it.as_object_mut().unwrap().remove("latency");
            }) > 0
        );
    }

    #[test]
    fn the_published_schema_is_this_one() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../docs/schema/run.schema.json");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, schema()).unwrap();
        }
        let published = std::fs::read_to_string(&path).unwrap();
        assert!(
            published == schema(),
            "docs/schema/run.schema.json is another one"
        );
    }
}
