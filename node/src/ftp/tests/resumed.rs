//! Uploads that were cut, and what their clients do next.

use super::*;

/// Cut when `sent` of `bytes` had come; then as `curl -C -` does it: what is missing by SIZE, by APPE or by REST. Does the server have the file?
fn gone_on(rig: &Rig, bytes: &[u8], sent: usize, by_append: bool) -> bool {
    let mut client = rig.logged_in();
    let mut data = client.passive();
    client.wants("STOR f", "150");
    data.write_all(&bytes[..sent]).unwrap();
    drop(client);
    drop(data);
    let mut client = rig.logged_in();
    let mut size = 0;
    assert!(waited_for(|| {
        size = client.ask("SIZE f").strip_prefix("213 ").map_or(0, |it| it.parse::<usize>().unwrap());
        size > 0
    }));
    if size < bytes.len() {
        let mut data = client.passive();
        if !by_append {
            client.wants(&format!("REST {size}"), "350");
        }
        client.wants(if by_append { "APPE f" } else { "STOR f" }, "150");
        data.write_all(&bytes[size..]).unwrap();
        drop(data);
        assert!(client.hear().starts_with("226"));
    }
    std::fs::read(rig.root().join("f")).is_ok_and(|it| it == bytes)
}

#[test]
fn a_client_that_was_cut_when_all_had_come_has_something_left_to_send() {
    let rig = Rig::new("all-had-come", |_| ());
    // Whole chunks and not, and a single byte more than what is reported.
    for len in [2, 70_000, 1 << 20, (1 << 20) + 1, 3 << 20] {
        let bytes: Vec<u8> = (0..len).map(|at: u32| (at / 7) as u8).collect();
        for by_append in [true, false] {
            for less in [0, 1] {
                if less < bytes.len() - 1 {
                    assert!(
                        gone_on(&rig, &bytes, bytes.len() - less, by_append),
                        "{len} bytes but {less}, {by_append}"
                    );
                    std::fs::remove_file(rig.root().join("f")).unwrap();
                }
            }
        }
    }
}
