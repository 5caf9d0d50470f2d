//! A trace as qlog, for the viewers of others.
//!
//! For: qvis and whatever else reads qlog. In and out: a trace → records of a JSON text sequence (RFC 7464).
//! Invariants: a header of qlog 0.3 (draft-ietf-quic-qlog-main-schema), then events in the order of time, ms since the trace began; what has no name
//! in qlog has one of ours, `longhaul:…`, as the draft asks of private events; a metric that did not change is not said again.
//! Absent on purpose: packets and frames: the data's protocol is not QUIC.

use serde_json::{Map, Value, json};

use super::sample::{RailFacts, RailId, Sample};
use super::series::Looks;
use super::{About, in_order};

/// RFC 7464: begins each record.
const RECORD: char = '\u{1e}';

/// The whole file.
#[must_use]
pub fn file(about: &About, looks: &Looks) -> String {
    let header = json!({
        "qlog_version": "0.3",
        "qlog_format": "JSON-SEQ",
        "title": about.title(),
        "code_version": env!("CARGO_PKG_VERSION"),
        "trace": {
            "title": about.what,
            "description": about.spacing_words(looks),
            "vantage_point": { "name": "longhaul", "type": "client" },
            "common_fields": { "time_format": "relative", "reference_time": about.began_unix_s * 1000 },
        },
    });
    let mut out = String::new();
    put(&mut out, &header);
    for (id, facts, before, now) in in_order(looks) {
        events(&mut out, id, facts, before, now);
    }
    out
}

fn put(out: &mut String, value: &Value) {
    out.push(RECORD);
    out.push_str(&value.to_string());
    out.push('\n');
}

fn group(id: RailId) -> String {
    if id.session == 0 { format!("rail {}", id.rail) } else { format!("session {}, rail {}", id.session, id.rail) }
}

#[expect(clippy::cast_precision_loss, reason = "ms with a fraction")]
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn events(out: &mut String, id: RailId, facts: &RailFacts, before: Option<&Sample>, now: &Sample) {
    let mut say = |name: &str, data: Map<String, Value>| {
        if !data.is_empty() {
            put(out, &json!({ "time": ms(now.at_ns), "name": name, "group_id": group(id), "data": data }));
        }
    };
    if before.is_none() {
        let rail = json!({ "rail": id.rail, "session": id.session, "path": facts.path, "transport": facts.transport,
            "controller": facts.controller });
        say("longhaul:rail_up", members(rail));
    }
    if before.is_none_or(|before| before.phase() != now.phase()) {
        let mut state = members(json!({ "new": now.phase() }));
        state.extend(before.map(|before| ("old".to_owned(), before.phase().into())));
        say("recovery:congestion_state_updated", state);
    }
    say("recovery:metrics_updated", metrics(before, now));
    if before.is_none_or(|before| before.policer != now.policer)
        && (now.policer.is_some() || before.is_some_and(|it| it.policer.is_some()))
    {
        say("longhaul:policer", members(json!({ "rate": now.policer.map(|rate| rate.saturating_mul(8)) })));
    }
    let Some(before) = before else { return };
    let mut figures = members(json!({ "delivered_rate": (now.delivered_since(before) * 8.0).round(),
        "queue": now.queue_ns.map(ms), "loss_percent": now.loss_since(before), "packets": now.sent,
        "lost_packets": now.lost, "resent_bytes": now.resent_bytes,
        "kernel_delivery_rate": now.kernel_rate.map(|rate| rate.saturating_mul(8)) }));
    figures.retain(|_, value| !value.is_null());
    say("longhaul:rail", figures);
}

/// Those of qlog's own metrics that are known and new.
fn metrics(before: Option<&Sample>, now: &Sample) -> Map<String, Value> {
    let mut out = Map::new();
    let mut put = |name: &str, of: &dyn Fn(&Sample) -> Option<Value>| {
        let value = of(now);
        if before.is_none_or(|before| of(before) != value) {
            out.extend(value.map(|value| (name.to_owned(), value)));
        }
    };
    put("min_rtt", &|it| it.base_rtt_ns.map(|ns| ms(ns).into()));
    put("smoothed_rtt", &|it| it.rtt_ns.map(|ns| ms(ns).into()));
    put("congestion_window", &|it| it.window.map(Into::into));
    put("bytes_in_flight", &|it| it.in_flight.map(Into::into));
    put("pacing_rate", &|it| it.rate.map(|rate| rate.saturating_mul(8).into()));
    out
}

fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}
