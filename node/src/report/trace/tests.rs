//! The three kinds of file, of a made-up trace: a policer that was found after a second, and a stream beside it.

use engine::meter::PathStats;
use serde_json::Value;
use sys::sock::TcpInfo;

use super::*;

const MS: u64 = 1_000_000;

fn word(name: &str) -> u64 {
    let mut letters = [0; 8];
    letters[..name.len()].copy_from_slice(name.as_bytes());
    u64::from_le_bytes(letters)
}

/// Four seconds, a look each 50 ms.
fn made_up() -> Looks {
    let mut looks = Looks::default();
    let facts = |transport: &'static str, controller: &'static str| {
        move || RailFacts { transport, controller, path: "<10.0.0.1>=10.0.0.2".to_owned() }
    };
    for step in 0..80 {
        let is_found = step >= 20;
        let stats = PathStats {
            rate: if is_found { 2_400_000 } else { 5_000_000 },
            rtt_ns: 52 * MS,
            base_rtt_ns: 50 * MS,
            queue_ns: MS,
            window: 1 << 20,
            in_flight: 120_000,
            packet_bytes: 1_222,
            packets: 130 * step,
            lost_packets: (30 * step).min(600),
            repair_bytes: 40_000 * step,
            delivered_bytes: 125_000 * step,
            policer: if is_found { 2_460_000 } else { 0 },
            phase_begin: word(if is_found { "below" } else { "start" }),
            ..PathStats::default()
        };
        let at_ns = step * 50 * MS;
        looks.add(RailId { session: 0, rail: 0 }, facts("udp", "delay"), Sample::of_packets(at_ns, &stats, true));
        let info = TcpInfo { rtt_us: 51_000, min_rtt_us: 50_000, mss: 1448, cwnd: 10, ..TcpInfo::default() };
        looks.add(RailId { session: 1, rail: 3 }, facts("tcp", ""), Sample::of_stream(at_ns, &info, true));
    }
    looks
}

fn about() -> About {
    About {
        what: "/data -> longhaul://h/".to_owned(),
        began_unix_s: 1_764_084_000,
        limiter: Some("limited by a policer at about 20 Mbit/s on the path".to_owned()),
    }
}

#[test]
fn qlog_is_a_sequence_of_records_in_the_order_of_time_that_says_what_changed() {
    let text = qlog::file(&about(), &made_up());
    assert!(text.starts_with('\u{1e}') && text.ends_with('\n'));
    let records: Vec<Value> = text
        .split('\u{1e}')
        .skip(1)
        .map(|record| serde_json::from_str(record.strip_suffix('\n').expect("a line")).expect("JSON"))
        .collect();
    assert_eq!((&records[0]["qlog_version"], &records[0]["qlog_format"]), (&"0.3".into(), &"JSON-SEQ".into()));
    assert_eq!(records[0]["trace"]["common_fields"]["reference_time"], 1_764_084_000_000_u64);
    let times: Vec<f64> = records[1..].iter().map(|it| it["time"].as_f64().expect("a time")).collect();
    assert!(times.is_sorted(), "{times:?}");
    let named = |name: &str, group: &str| -> Vec<&Value> {
        records.iter().filter(|it| it["name"] == name && it["group_id"] == group).collect()
    };
    let states = named("recovery:congestion_state_updated", "rail 0");
    assert_eq!(states.len(), 2);
    assert_eq!((&states[1]["data"]["old"], &states[1]["data"]["new"]), (&"start".into(), &"below".into()));
    assert_eq!(states[1]["time"], 1000.0);
    let metrics = named("recovery:metrics_updated", "rail 0");
    assert_eq!(metrics.len(), 2, "what did not change is not said again");
    assert_eq!(metrics[0]["data"]["min_rtt"], 50.0);
    assert_eq!(metrics[0]["data"]["pacing_rate"], 40_000_000);
    assert_eq!(metrics[1]["data"].as_object().expect("members").keys().collect::<Vec<_>>(), ["pacing_rate"]);
    let policer = named("longhaul:policer", "rail 0");
    assert_eq!((policer.len(), &policer[0]["data"]["rate"]), (1, &19_680_000.into()));
    let figures = named("longhaul:rail", "rail 0");
    assert_eq!(figures[0]["data"]["delivered_rate"], 20e6);
    // 30 lost beside 100 that arrived.
    assert_eq!(figures[0]["data"]["loss_percent"], 30.0 * 100.0 / 130.0);
    let stream = named("recovery:congestion_state_updated", "session 1, rail 3");
    assert_eq!(stream[0]["data"]["new"], "kernel");
    assert_eq!(named("recovery:metrics_updated", "session 1, rail 3")[0]["data"]["congestion_window"], 14_480);
}

#[test]
fn lines_have_a_head_and_what_json_has_of_rails() {
    let text = lines(&about(), &made_up());
    let mut all = text.lines();
    let head: Value = serde_json::from_str(all.next().expect("a head")).expect("JSON");
    assert_eq!((&head["event"], &head["rails_left_out"]), (&"trace".into(), &0.into()));
    let records: Vec<RailRecord> = all.map(|line| serde_json::from_str(line).expect("a record")).collect();
    assert_eq!(records.len(), 160);
    assert!(records.iter().map(|it| it.at_s).is_sorted());
    let last = records.iter().rfind(|it| it.transport == "udp").expect("packets");
    assert_eq!((last.phase.as_str(), last.policer_bps, last.queue_ms), ("below", Some(19_680_000.0), Some(1.0)));
    assert_eq!(last.loss_percent, Some(0.0), "since the look before");
}

#[test]
fn a_page_has_a_plot_of_each_figure_and_no_markup_of_others() {
    let page = page::page(&about(), &made_up());
    for words in ["Rate, Mbit/s", "Delay, ms", "Loss, % of packets", "On the way, MB", "Phase", "below", "kernel"] {
        assert!(page.contains(words), "{words}");
    }
    assert!(page.contains("limited by a policer at about 20 Mbit/s on the path"));
    assert!(page.contains("600 of 10 270 packets lost (5.84 %)"), "{page}");
    assert!(!page.contains("<10.0") && !page.contains("<script") && !page.contains("http"));
    let empty = page::page(&about(), &Looks::default());
    assert!(empty.contains("No rail was looked at"));
}

#[test]
fn a_long_trace_is_drawn_with_few_points_and_no_peak_is_lost() {
    let mut looks = Looks::default();
    for step in 0..10_000 {
        let queue_ns = if step == 5_555 { 90 * MS } else { MS };
        let stats = PathStats { base_rtt_ns: MS, queue_ns, packets: step, ..PathStats::default() };
        let facts = || RailFacts { transport: "udp", controller: "delay", path: String::new() };
        looks.add(RailId { session: 0, rail: 0 }, facts, Sample::of_packets(step * 10 * MS, &stats, true));
    }
    let page = page::page(&about(), &looks);
    assert!(page.len() < 60_000, "{}", page.len());
    let delay = page.split("Delay, ms</figcaption>").nth(1).expect("a plot of delay");
    // 90 ms is nine tenths of a grid up to 100.
    assert!(delay.split("</figure>").next().expect("its end").contains(",22.4 "), "the peak is on the line");
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_file_is_written_once_and_one_that_stood_there_is_replaced_and_said() {
    let folder = Folder(std::env::temp_dir().join(format!("longhaul-trace-{}", std::process::id())));
    fs::create_dir_all(&folder.0).expect("room");
    let path = folder.0.join("t.json");
    let write = || {
        let trace = Trace::default();
        trace.begin(&path, "a -> b".to_owned()).expect("a place");
        (trace.write(Some("limited by x")).expect("once"), trace.write(None))
    };
    let (told, again) = write();
    assert!(told.starts_with("trace: ") && !told.contains("in the place of"), "{told}");
    assert_eq!(again, None);
    assert!(fs::read_to_string(&path).expect("it").contains("\"limiter\":\"limited by x\""));
    let (told, _) = write();
    assert!(told.contains("in the place of the file that stood there"), "{told}");
    assert_eq!(fs::read_dir(&folder.0).expect("it").count(), 1, "nothing else is left");
    let refused = |name: &str| Trace::default().begin(&folder.0.join(name), String::new()).expect_err("refused").exit;
    assert_eq!((refused("t.txt"), refused("t")), (Exit::Usage, Exit::Usage));
    assert_eq!(refused("no/such/t.html"), Exit::Usage);
    fs::create_dir(folder.0.join("folder.html")).expect("room");
    assert_eq!(refused("folder.html"), Exit::Usage);
    assert_eq!(Trace::default().write(None), None, "nothing was asked for");
}
