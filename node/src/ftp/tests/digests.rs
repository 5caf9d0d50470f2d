//! HASH of files whose digest is known: told without reading, and never of other bytes.

use std::os::unix::fs::FileExt;

use super::*;

const BYTES: usize = 3 << 20;

fn hash_of(client: &mut Client<TcpStream>, name: &str) -> String {
    let said = client.wants(&format!("HASH {name}"), &format!("213 BLAKE3 0-{BYTES} "));
    said.split(' ').nth(3).unwrap().to_owned()
}

fn put(client: &mut Client<TcpStream>, command: &str, bytes: &[u8]) {
    let mut data = client.passive();
    client.wants(command, "150");
    data.write_all(bytes).unwrap();
    drop(data);
    assert!(client.hear().starts_with("226"));
}

#[test]
fn hash_of_an_upload_needs_no_reading_and_is_never_of_bytes_that_were() {
    let rig = Rig::new("known", |_| ());
    let (path, bytes) = (rig.root().join("f"), vec![5; BYTES]);
    let right = |path: &Path| blake3::hash(&std::fs::read(path).unwrap()).to_string();
    let known = || rig.door.known.tell(&std::fs::File::open(&path).unwrap());
    let mut client = rig.logged_in();
    client.wants("OPTS HASH BLAKE3", "200");
    put(&mut client, "STOR f", &bytes);
    if known().is_none() {
        // Its file system reports no writers.
        return;
    }
    assert_eq!(known(), Some((right(&path), BYTES as u64)), "from the upload");
    assert_eq!(hash_of(&mut client, "f"), right(&path));
    // What is said is what is known: the file is not read.
    let plant = || {
        let begun = rig.door.known.begin(&std::fs::File::open(&path).unwrap()).unwrap();
        rig.door.known.end(begun, BYTES as u64, "planted".to_owned());
    };
    plant();
    assert_eq!(hash_of(&mut client, "f"), "planted");
    // A mode is no byte.
    client.wants("SITE CHMOD 600 f", "200");
    assert_eq!(hash_of(&mut client, "f"), "planted");
    // A byte turns; length and times are what they were.
    let before = sys::fs::stat_file(&std::fs::File::open(&path).unwrap()).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"x", 7).unwrap();
    sys::fs::set_file_meta(&file, None, Some((before.mtime_s, before.mtime_ns))).unwrap();
    assert_eq!(hash_of(&mut client, "f"), right(&path), "somebody has it open for writing");
    drop(file);
    assert_eq!(known(), None);
    assert_eq!(hash_of(&mut client, "f"), right(&path));
    assert_eq!(known(), Some((right(&path), BYTES as u64)), "from HASH");
    // By the server itself: a new file, and one that is gone on with.
    plant();
    put(&mut client, "STOR f", &vec![6; BYTES]);
    assert_eq!(hash_of(&mut client, "f"), right(&path));
    plant();
    client.wants(&format!("REST {}", BYTES - 3), "350");
    put(&mut client, "STOR f", b"abc");
    assert_eq!(hash_of(&mut client, "f"), right(&path));
    plant();
    std::fs::write(rig.root().join("g"), vec![8; BYTES]).unwrap();
    client.wants("RNFR g", "350");
    client.wants("RNTO f", "250");
    assert_eq!(hash_of(&mut client, "f"), right(&path));
    // A part of the file is read, and another digest is made.
    plant();
    client.wants("RANG 0 9", "350");
    let said = client.wants("HASH f", "213 BLAKE3 ");
    assert!(!said.contains("planted"), "{said}");
    client.wants("OPTS HASH MD5", "200");
    assert!(!client.wants("HASH f", "213 MD5").contains("planted"));
}
