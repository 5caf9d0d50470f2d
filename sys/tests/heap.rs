//! The heap of a process that goes on. A file of its own: what other tests have at the same time would count.
#![cfg(target_env = "gnu")]

#[test]
fn pages_of_the_heap_that_hold_nothing_go_back_to_the_kernel() {
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
        statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("pages") * 4096
    };
    // What stays lies between what goes, so that no arena gets shorter at its end.
    let mut pieces: Vec<_> = (0..64 << 10).map(|_| Some(vec![1_u8; 1024].into_boxed_slice())).collect();
    pieces.iter_mut().enumerate().filter(|(number, _)| number % 1024 != 1023).for_each(|(_, piece)| *piece = None);
    let before = resident();
    let began = std::time::Instant::now();
    sys::mem::trim_heap();
    let took = began.elapsed();
    let given = before.saturating_sub(resident());
    println!("{} MiB were given back in {took:?}", given >> 20);
    assert!(given >= 48 << 20, "{given} of 64 MiB were given back");
    assert!(pieces.iter().flatten().all(|piece| piece.iter().all(|byte| *byte == 1)));
}
