//! The link of a scenario, between clients and what is measured.

use moonwire_load::quantity;
use moonwire_report::Parameters;

use super::knobs::{Knobs, Mistake};
use crate::link::LinkSpec;

/// What the scenario asks of the link; the loopback where nothing is said.
pub(super) fn link(knobs: &Knobs, place: &str) -> Result<LinkSpec, Mistake> {
    let default = LinkSpec::default();
    let delay = knobs.one("link_delay", quantity::duration_ms)?;
    let jitter = knobs.one("link_jitter", quantity::duration_ms)?;
    let rate_bit_per_s = knobs.one("link_rate", quantity::positive)?;
    let queue_bytes = knobs.one("link_queue", quantity::size)?;
    let spec = LinkSpec {
        delay: delay.unwrap_or(default.delay),
        jitter: jitter.unwrap_or(default.jitter),
        loss: knobs.one("link_loss", quantity::fraction)?.unwrap_or(0.0),
        rate_bytes_per_s: rate_bit_per_s.map(|bits| bits.div_ceil(8)),
        queue_bytes: queue_bytes.unwrap_or(default.queue_bytes),
        ..default
    };
    if let Some(knob) = knobs.get("link_queue").filter(|_| spec.is_plain()) {
        let clause = "it bounds a link, and there is none: give 'link_delay', 'link_jitter', \
                      'link_loss' or 'link_rate', too";
        return Err(knob.mistake("link_queue", clause));
    }
    spec.check()
        .map_err(|error| knobs.mistake(place, &error.to_string()))?;
    Ok(spec)
}

/// What tells the cells of a run over this link from those of another.
pub(super) fn note(spec: &LinkSpec, parameters: &mut Parameters) {
    if spec.is_plain() {
        return;
    }
    let milliseconds = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    parameters.link_delay_ms = Some(milliseconds(spec.delay));
    parameters.link_jitter_ms = (!spec.jitter.is_zero()).then(|| milliseconds(spec.jitter));
    parameters.link_loss = (spec.loss > 0.0).then_some(spec.loss);
    parameters.link_rate_bit_per_s = spec.rate_bytes_per_s.map(|bytes| bytes * 8);
    let bound = spec.queue_bytes != LinkSpec::default().queue_bytes;
    parameters.link_queue_bytes = bound.then_some(spec.queue_bytes as u64);
}
