use std::os::fd::OwnedFd; use std::sync::Arc; use std::time::Duration;
use sys::mem::{HEADROOM, Mem, Pool}; use sys::ring::{Driver, Kind, Op}; use sys::{clock, sock};
const CHUNK: usize = 1<<20; const NET: u64 = 4<<30;
fn ring(kind: Kind) -> (Pool, Driver) { let p = Pool::new(4, CHUNK).unwrap(); let d = Driver::choose(&p, Some(kind)).unwrap().0; (p,d) }
fn go(kind: Kind, s: Arc<OwnedFd>, send: bool, all: bool, pin: Option<usize>) {
    if let Some(c)=pin { sys::host::pin_thread(c).unwrap(); }
    let (mut pool, mut d) = ring(kind); let mut left = NET; let mut done = Vec::new();
    let mut mem = Some(Mem::Buf(pool.take().unwrap()));
    let mut waits = 0u64;
    while left > 0 {
        let m = mem.take().unwrap();
        d.submit(0, if send {Op::Send{socket:s.clone(),mem:m,at:HEADROOM,len:CHUNK}} else {Op::Recv{socket:s.clone(),mem:m,at:HEADROOM,len:CHUNK.min(left as usize),all}});
        while done.is_empty() { waits+=1; d.wait(None,&mut done).unwrap(); }
        let e = done.pop().unwrap(); let n = e.result.unwrap() as u64; assert!(n>0); left -= n.min(left); mem = Some(e.mem);
    }
    let _=waits;
}
fn std_go(s: Arc<OwnedFd>, send: bool, pin: Option<usize>) {
    use std::io::{Read,Write}; if let Some(c)=pin { sys::host::pin_thread(c).unwrap(); }
    let mut st = std::net::TcpStream::from(s.try_clone().unwrap()); let mut pool = Pool::new(1, CHUNK).unwrap(); let mut b = pool.take().unwrap();
    let mut left = NET; while left>0 { let n = if send { st.write_all(b.payload()).unwrap(); CHUNK } else { st.read(b.payload_mut()).unwrap() }; left -= (n as u64).min(left); }
}
fn main(){
    for r in 0..4 { for (name, ks, kr, all) in [("uring/uring all",Some(Kind::Uring),Some(Kind::Uring),true),("uring/uring some",Some(Kind::Uring),Some(Kind::Uring),false),("plain/plain all",Some(Kind::Plain),Some(Kind::Plain),true),("uring/plain",Some(Kind::Uring),Some(Kind::Plain),true),("plain/uring",Some(Kind::Plain),Some(Kind::Uring),true),("write/read blocking",None,None,true)] {
      for pin in [false,true] {
        let l = sock::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let a = sock::connect_from(l.local_addr().unwrap(), None, Duration::from_secs(5), |fd| sock::set_congestion(fd,"cubic")).unwrap();
        let (a,b) = (Arc::new(OwnedFd::from(a)), Arc::new(OwnedFd::from(l.accept().unwrap().0)));
        let (s,c)=(clock::now_ns(),clock::process_cpu_ns());
        let t = std::thread::spawn(move || match ks { Some(k)=>go(k,a,true,true,pin.then_some(0)), None=>std_go(a,true,pin.then_some(0)) });
        std::thread::spawn(move || match kr {Some(k)=>go(k,b,false,all,pin.then_some(1)), None=>std_go(b,false,pin.then_some(1))}).join().unwrap(); t.join().unwrap();
        let (n,c)=(clock::now_ns()-s,clock::process_cpu_ns()-c);
        println!("{r} {name:22} pin={pin} {:.1} Gb/s {:.3} s/GB", NET as f64*8.0/n as f64, c as f64/NET as f64);
      }
    }}
}
