//! Finds the archives of verbs for the feature `rdma`, and says so where they are not there.
//!
//! In and out: the feature, and archives in the folders of this target's C library (or of LONGHAUL_RDMA_LIBS) → cfg `rdma_device` and what is linked.
//! Absent on purpose: pkg-config (Debian's words for static linking name providers that are left out here).

use std::env::var;
use std::path::PathBuf;

/// Who drives a device: the archive, and the name under which it is registered. Cards of this century that still are sold, and the two soft ones.
const PROVIDERS: [(&str, &str); 12] = [
    ("mlx5", "mlx5"),
    ("mlx4", "mlx4"),
    ("irdma-rdmav", "irdma"),
    ("bnxt_re-rdmav", "bnxt_re"),
    ("efa", "efa"),
    ("hns-rdmav", "hns"),
    ("qedr-rdmav", "qedr"),
    ("cxgb4-rdmav", "cxgb4"),
    ("mana", "mana"),
    ("erdma-rdmav", "erdma"),
    ("rxe-rdmav", "rxe"),
    ("siw-rdmav", "siw"),
];

/// Debian: libibverbs-dev, librdmacm-dev, libnl-3-dev, libnl-route-3-dev.
const LIBRARIES: [&str; 4] = ["rdmacm", "ibverbs", "nl-route-3", "nl-3"];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(rdma_device)");
    println!("cargo::rerun-if-env-changed=LONGHAUL_RDMA_LIBS");
    println!("cargo::rerun-if-changed=build.rs");
    if var("CARGO_FEATURE_RDMA").is_err() {
        return;
    }
    let arch = var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let is_glibc = var("CARGO_CFG_TARGET_ENV").is_ok_and(|it| it == "gnu");
    let folders = match var("LONGHAUL_RDMA_LIBS") {
        Ok(folder) => vec![PathBuf::from(folder)],
        Err(_) => vec![format!("/usr/lib/{arch}-linux-gnu").into(), "/usr/lib64".into()],
    };
    for folder in &folders {
        println!("cargo::rerun-if-changed={}", folder.join("libibverbs.a").display());
    }
    let found = folders.iter().find(|it| LIBRARIES.iter().all(|name| it.join(format!("lib{name}.a")).exists()));
    let Some(folder) = found.filter(|_| is_glibc) else {
        println!(
            "cargo::warning=RDMA is not in this build: no libibverbs.a, librdmacm.a, libnl-3.a and libnl-route-3.a for {arch} and glibc in {folders:?} \
             (Debian: apt-get install libibverbs-dev librdmacm-dev libnl-3-dev libnl-route-3-dev)"
        );
        return;
    };
    link(folder);
}

/// The libraries, and the providers that this version of rdma-core has.
fn link(folder: &PathBuf) {
    let names: Vec<String> = std::fs::read_dir(folder)
        .map(|all| {
            all.filter_map(|it| {
                Some(it.ok()?.file_name().to_str()?.strip_suffix(".a")?.strip_prefix("lib")?.to_owned())
            })
            .collect()
        })
        .unwrap_or_default();
    // The number after "rdmav" is that of rdma-core's inner interface.
    let archive = |prefix: &str| {
        let fits = |it: &&String| it.as_str() == prefix || (prefix.ends_with("-rdmav") && it.starts_with(prefix));
        names.iter().find(fits).cloned()
    };
    let there: Vec<(String, &str)> =
        PROVIDERS.iter().filter_map(|(prefix, name)| Some((archive(prefix)?, *name))).collect();
    let mut code = String::from("unsafe extern \"C\" {\n");
    for (_, name) in &there {
        code += &format!("    #[link_name = \"verbs_provider_{name}\"]\n    static {}: c_void;\n", name.to_uppercase());
    }
    code += &format!(
        "}}\n\npub(in crate::rdma) const NAMES: [&str; {}] = {:?};\n",
        there.len(),
        there.iter().map(|it| it.1).collect::<Vec<_>>()
    );
    code += &format!("\nfn all() -> [*const c_void; {}] {{\n    [\n", there.len());
    for (_, name) in &there {
        code += &format!("        &raw const {},\n", name.to_uppercase());
    }
    code += "    ]\n}\n";
    let out = PathBuf::from(var("OUT_DIR").expect("cargo says where")).join("providers.rs");
    std::fs::write(&out, code).expect("cargo's folder can be written");
    println!("cargo::rustc-cfg=rdma_device");
    println!("cargo::rustc-link-search=native={}", folder.display());
    // Each before those that it calls.
    let (first, rest) = LIBRARIES.split_first().expect("four");
    let owned = |it: &&str| (*it).to_owned();
    let all = std::iter::once(owned(first)).chain(there.into_iter().map(|it| it.0)).chain(rest.iter().map(owned));
    for name in all {
        println!("cargo::rustc-link-lib=static:-bundle={name}");
    }
}
