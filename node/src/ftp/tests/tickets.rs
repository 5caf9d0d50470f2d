//! Tickets of TLS 1.3: when they come on data connections.

use super::*;

#[test]
fn tickets_of_an_upload_come_when_its_client_has_said_its_last_word() {
    let rig = Rig::new("unread", |settings| settings.clear = Vec::new());
    let config = client_config(&rustls::version::TLS13);
    let mut client = secure_client(&rig, &config);
    client.wants("PROT P", "200");
    // Each shows what the one before brought, or the control connection.
    for _ in 0..3 {
        let data = client.passive();
        client.wants("STOR f", "150");
        let mut data = covered(&config, data);
        data.write_all(b"hello").unwrap();
        data.flush().unwrap();
        // A client that closed now would reset the connection if there were anything in it, and what it has not sent yet were lost.
        std::thread::sleep(std::time::Duration::from_millis(300));
        data.sock.set_nonblocking(true).unwrap();
        let unread = data.sock.peek(&mut [0]);
        assert_eq!(unread.map_err(|error| error.kind()), Err(io::ErrorKind::WouldBlock));
        data.sock.set_nonblocking(false).unwrap();
        data.conn.send_close_notify();
        data.flush().unwrap();
        assert_eq!(data.read_to_end(&mut Vec::new()).unwrap(), 0);
        assert_eq!(data.conn.tls13_tickets_received(), 2);
        let said = client.hear();
        assert!(said.starts_with("226 5 bytes"), "{said}");
    }
}

#[test]
fn who_offers_tls12_has_it_where_sessions_have_to_be_resumed() {
    use rustls::ProtocolVersion::{TLSv1_2, TLSv1_3};
    use rustls::version::{TLS12, TLS13};
    for (required, versions, expected) in [
        (true, &[&TLS13, &TLS12][..], TLSv1_2),
        (true, &[&TLS12], TLSv1_2),
        (true, &[&TLS13], TLSv1_3),
        (false, &[&TLS13, &TLS12], TLSv1_3),
        (false, &[&TLS12], TLSv1_2),
    ] {
        let rig = Rig::new("offers", |settings| settings.reuse_required = required);
        let client = secure_client(&rig, &offering(versions));
        let got = client.line.get_ref().conn.protocol_version();
        assert_eq!(got, Some(expected), "required: {required}, {versions:?}");
    }
}

#[test]
fn a_hello_that_comes_byte_by_byte_and_one_that_is_none_are_answered() {
    let rig = Rig::new("hello", |_| ());
    let mut client = rig.client();
    client.wants("AUTH TLS", "234");
    let (mut stream, mut hello) = (client.line.into_inner(), Vec::new());
    let name = ServerName::try_from("localhost").unwrap();
    let mut connection = ClientConnection::new(offering(&[&rustls::version::TLS13]), name).unwrap();
    while connection.wants_write() {
        connection.write_tls(&mut hello).unwrap();
    }
    stream.set_nodelay(true).unwrap();
    for byte in &hello {
        stream.write_all(&[*byte]).unwrap();
    }
    let mut client = Client { line: BufReader::new(StreamOwned::new(connection, stream)) };
    client.log_in(&rig.password);

    let mut client = rig.client();
    client.wants("AUTH TLS", "234");
    let mut stream = client.line.into_inner();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).unwrap();
    assert_eq!(said.first(), Some(&21), "an alert of TLS: {said:?}");
}

#[test]
fn a_hello_of_any_bytes_says_what_it_offers_and_breaks_nothing() {
    let with = |versions: &[u8]| {
        [&[1, 2, 0, 43, 0, versions.len() as u8 + 1, versions.len() as u8], versions, &[9, 9]].concat()
    };
    assert!(tls::offers_tls12(&with(&[3, 4, 3, 3])) && tls::offers_tls12(&with(&[0x7a, 0x7a, 3, 3])));
    assert!(!tls::offers_tls12(&with(&[3, 4])) && !tls::offers_tls12(&with(&[3, 4, 0x33, 3])));
    assert!(tls::offers_tls12(&[]) && tls::offers_tls12(b"no hello"));
    // Lengths that lie, and a list that is cut.
    assert!(tls::offers_tls12(&[0, 43, 0, 0, 255]) && !tls::offers_tls12(&[0, 43, 0, 255, 254, 3]));
}
