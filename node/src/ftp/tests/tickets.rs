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
