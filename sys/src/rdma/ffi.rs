//! Verbs and rdma_cm, declared by hand: what this program calls, and no more.
//!
//! Source: infiniband/verbs.h and rdma/rdma_cma.h of rdma-core 44, whose ABI is kept (IBVERBS_1.x, RDMACM_1.0); the test below compares sizes
//! and offsets with the headers where these are installed. The three calls of the data path stand in a table of the context (struct
//! ibv_context_ops), not among the library's symbols.
//! Absent on purpose: everything one-sided (RDMA READ, WRITE, atomics), datagrams, extended verbs.

use std::ffi::{c_char, c_int, c_void};

/// struct ibv_context_ops: a table of 32 pointers.
#[repr(C)]
pub(super) struct ContextOps {
    before_poll: [*mut c_void; 11],
    pub(super) poll_cq: unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int,
    pub(super) req_notify_cq: unsafe extern "C" fn(*mut Cq, c_int) -> c_int,
    before_post_srq_recv: [*mut c_void; 7],
    pub(super) post_srq_recv: unsafe extern "C" fn(*mut Srq, *mut RecvWr, *mut *mut RecvWr) -> c_int,
    before_post_send: [*mut c_void; 4],
    pub(super) post_send: unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int,
    pub(super) post_recv: unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int,
    after: [*mut c_void; 5],
}

/// struct ibv_context, up to what is read here.
#[repr(C)]
pub(super) struct Context {
    pub(super) device: *mut Device,
    pub(super) ops: ContextOps,
}

/// struct ibv_device.
#[repr(C)]
pub(super) struct Device {
    ops: [*mut c_void; 2],
    node_type: c_int,
    transport_type: c_int,
    pub(super) name: [c_char; 64],
    dev_name: [c_char; 64],
    dev_path: [c_char; 256],
    ibdev_path: [c_char; 256],
}

/// struct ibv_pd: only its address is used.
#[repr(C)]
pub(super) struct Pd {
    context: *mut Context,
}

/// struct ibv_cq: only its address is used.
#[repr(C)]
pub(super) struct Cq {
    context: *mut Context,
}

/// struct ibv_srq: only its address is used.
#[repr(C)]
pub(super) struct Srq {
    context: *mut Context,
}

/// struct ibv_qp, up to what is read here.
#[repr(C)]
pub(super) struct Qp {
    pub(super) context: *mut Context,
}

/// struct ibv_comp_channel.
#[repr(C)]
pub(super) struct CompChannel {
    context: *mut Context,
    pub(super) fd: c_int,
    refcnt: c_int,
}

/// struct ibv_mr.
#[repr(C)]
pub(super) struct Mr {
    context: *mut Context,
    pd: *mut Pd,
    addr: *mut c_void,
    length: usize,
    handle: u32,
    pub(super) lkey: u32,
    rkey: u32,
}

/// struct ibv_sge.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Sge {
    pub(super) addr: u64,
    pub(super) length: u32,
    pub(super) lkey: u32,
}

/// struct ibv_recv_wr.
#[repr(C)]
pub(super) struct RecvWr {
    pub(super) wr_id: u64,
    pub(super) next: *mut RecvWr,
    pub(super) sg_list: *mut Sge,
    pub(super) num_sge: c_int,
}

/// struct ibv_send_wr.
#[repr(C)]
pub(super) struct SendWr {
    pub(super) wr_id: u64,
    pub(super) next: *mut SendWr,
    pub(super) sg_list: *mut Sge,
    pub(super) num_sge: c_int,
    pub(super) opcode: c_int,
    pub(super) send_flags: u32,
    pub(super) imm_data: u32,
    /// Addresses at the peer: of one-sided work alone.
    pub(super) rest: [u64; 11],
}

/// struct ibv_wc.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Wc {
    pub(super) wr_id: u64,
    pub(super) status: c_int,
    pub(super) opcode: c_int,
    pub(super) vendor_err: u32,
    pub(super) byte_len: u32,
    imm_data: u32,
    qp_num: u32,
    src_qp: u32,
    wc_flags: u32,
    pkey_index: u16,
    slid: u16,
    sl: u8,
    dlid_path_bits: u8,
}

/// struct ibv_qp_cap.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct QpCap {
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
}

/// struct ibv_qp_init_attr.
#[repr(C)]
pub(super) struct QpInitAttr {
    pub(super) qp_context: *mut c_void,
    pub(super) send_cq: *mut Cq,
    pub(super) recv_cq: *mut Cq,
    pub(super) srq: *mut Srq,
    pub(super) cap: QpCap,
    pub(super) qp_type: c_int,
    pub(super) sq_sig_all: c_int,
}

/// struct ibv_srq_init_attr with its struct ibv_srq_attr.
#[repr(C)]
pub(super) struct SrqInitAttr {
    pub(super) srq_context: *mut c_void,
    pub(super) max_wr: u32,
    pub(super) max_sge: u32,
    pub(super) srq_limit: u32,
}

/// struct ibv_port_attr.
#[repr(C)]
#[derive(Default)]
pub(super) struct PortAttr {
    pub(super) state: c_int,
    pub(super) max_mtu: c_int,
    pub(super) active_mtu: c_int,
    gid_tbl_len: c_int,
    port_cap_flags: u32,
    pub(super) max_msg_sz: u32,
    rest: [u32; 7],
}

/// struct ibv_device_attr, as words: few of its forty fields are read.
#[repr(C, align(8))]
pub(super) struct DeviceAttr {
    pub(super) words: [u32; 58],
}

/// struct rdma_event_channel.
#[repr(C)]
pub(super) struct EventChannel {
    pub(super) fd: c_int,
}

/// struct rdma_cm_id.
#[repr(C)]
pub(super) struct CmId {
    pub(super) verbs: *mut Context,
    channel: *mut EventChannel,
    context: *mut c_void,
    pub(super) qp: *mut Qp,
    /// struct rdma_route: both addresses, then union of GIDs.
    src: [u8; 128],
    dst: [u8; 128],
    pub(super) sgid: [u8; 16],
    dgid: [u8; 16],
    pkey: [u8; 8],
    path_rec: *mut c_void,
    num_paths: [c_int; 2],
    ps: c_int,
    pub(super) port_num: u8,
}

/// struct rdma_conn_param.
#[repr(C)]
pub(super) struct ConnParam {
    pub(super) private_data: *const c_void,
    pub(super) private_data_len: u8,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) flow_control: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) srq: u8,
    pub(super) qp_num: u32,
}

/// struct rdma_cm_event; its union has room for datagrams.
#[repr(C)]
pub(super) struct CmEvent {
    pub(super) id: *mut CmId,
    listen_id: *mut CmId,
    pub(super) event: c_int,
    pub(super) status: c_int,
    pub(super) conn: ConnParam,
    rest: [u64; 4],
}

pub(super) const RDMA_PS_TCP: c_int = 0x106;
pub(super) const IBV_QPT_RC: c_int = 2;
pub(super) const IBV_WR_SEND: c_int = 2;
pub(super) const IBV_SEND_SIGNALED: u32 = 2;
pub(super) const IBV_ACCESS_LOCAL_WRITE: c_int = 1;

/// Which of the words of a [`DeviceAttr`] are read.
pub(super) mod device {
    pub(in crate::rdma) const MAX_QP_WR: usize = 28;
    pub(in crate::rdma) const MAX_CQE: usize = 33;
    pub(in crate::rdma) const MAX_SRQ_WR: usize = 54;
}

/// enum rdma_cm_event_type: those that are told apart here.
pub(super) mod event {
    use std::ffi::c_int;

    pub(in crate::rdma) const ADDR_RESOLVED: c_int = 0;
    pub(in crate::rdma) const ROUTE_RESOLVED: c_int = 2;
    pub(in crate::rdma) const CONNECT_REQUEST: c_int = 4;
    pub(in crate::rdma) const REJECTED: c_int = 8;
    pub(in crate::rdma) const ESTABLISHED: c_int = 9;
    pub(in crate::rdma) const DISCONNECTED: c_int = 10;
    pub(in crate::rdma) const DEVICE_REMOVAL: c_int = 11;
    pub(in crate::rdma) const ADDR_CHANGE: c_int = 14;
    pub(in crate::rdma) const TIMEWAIT_EXIT: c_int = 15;
}

unsafe extern "C" {
    pub(super) fn ibv_static_providers(unused: *mut c_void, ...);
    pub(super) fn ibv_wc_status_str(status: c_int) -> *const c_char;
    pub(super) fn ibv_query_device(context: *mut Context, attr: *mut DeviceAttr) -> c_int;
    pub(super) fn ibv_query_port(context: *mut Context, port: u8, attr: *mut PortAttr) -> c_int;
    pub(super) fn ibv_alloc_pd(context: *mut Context) -> *mut Pd;
    pub(super) fn ibv_dealloc_pd(pd: *mut Pd) -> c_int;
    pub(super) fn ibv_reg_mr(pd: *mut Pd, addr: *mut c_void, length: usize, access: c_int) -> *mut Mr;
    pub(super) fn ibv_dereg_mr(mr: *mut Mr) -> c_int;
    pub(super) fn ibv_create_comp_channel(context: *mut Context) -> *mut CompChannel;
    pub(super) fn ibv_destroy_comp_channel(channel: *mut CompChannel) -> c_int;
    pub(super) fn ibv_create_cq(
        context: *mut Context,
        cqe: c_int,
        of: *mut c_void,
        channel: *mut CompChannel,
        vector: c_int,
    ) -> *mut Cq;
    pub(super) fn ibv_destroy_cq(cq: *mut Cq) -> c_int;
    pub(super) fn ibv_get_cq_event(channel: *mut CompChannel, cq: *mut *mut Cq, of: *mut *mut c_void) -> c_int;
    pub(super) fn ibv_ack_cq_events(cq: *mut Cq, count: u32);
    pub(super) fn ibv_create_srq(pd: *mut Pd, attr: *mut SrqInitAttr) -> *mut Srq;
    pub(super) fn ibv_destroy_srq(srq: *mut Srq) -> c_int;

    pub(super) fn rdma_create_event_channel() -> *mut EventChannel;
    pub(super) fn rdma_destroy_event_channel(channel: *mut EventChannel);
    pub(super) fn rdma_get_devices(count: *mut c_int) -> *mut *mut Context;
    pub(super) fn rdma_create_id(channel: *mut EventChannel, id: *mut *mut CmId, of: *mut c_void, ps: c_int) -> c_int;
    pub(super) fn rdma_destroy_id(id: *mut CmId) -> c_int;
    pub(super) fn rdma_migrate_id(id: *mut CmId, channel: *mut EventChannel) -> c_int;
    pub(super) fn rdma_bind_addr(id: *mut CmId, addr: *mut libc::sockaddr) -> c_int;
    pub(super) fn rdma_listen(id: *mut CmId, backlog: c_int) -> c_int;
    pub(super) fn rdma_resolve_addr(
        id: *mut CmId,
        from: *mut libc::sockaddr,
        to: *mut libc::sockaddr,
        ms: c_int,
    ) -> c_int;
    pub(super) fn rdma_resolve_route(id: *mut CmId, ms: c_int) -> c_int;
    pub(super) fn rdma_create_qp(id: *mut CmId, pd: *mut Pd, attr: *mut QpInitAttr) -> c_int;
    pub(super) fn rdma_destroy_qp(id: *mut CmId);
    pub(super) fn rdma_connect(id: *mut CmId, param: *mut ConnParam) -> c_int;
    pub(super) fn rdma_accept(id: *mut CmId, param: *mut ConnParam) -> c_int;
    pub(super) fn rdma_reject(id: *mut CmId, data: *const c_void, bytes: u8) -> c_int;
    pub(super) fn rdma_disconnect(id: *mut CmId) -> c_int;
    pub(super) fn rdma_get_cm_event(channel: *mut EventChannel, event: *mut *mut CmEvent) -> c_int;
    pub(super) fn rdma_ack_cm_event(event: *mut CmEvent) -> c_int;
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};
    use std::process::Command;

    use super::*;

    /// Each as the C compiler has it, and as it stands here: of libibverbs, of librdmacm, and constants.
    fn ours() -> Vec<(&'static str, usize)> {
        [verbs(), connections(), constants()].concat()
    }

    fn verbs() -> Vec<(&'static str, usize)> {
        vec![
            ("offsetof(struct ibv_context, device)", offset_of!(Context, device)),
            ("offsetof(struct ibv_context, ops.poll_cq)", offset_of!(Context, ops) + offset_of!(ContextOps, poll_cq)),
            (
                "offsetof(struct ibv_context, ops.req_notify_cq)",
                offset_of!(Context, ops) + offset_of!(ContextOps, req_notify_cq),
            ),
            (
                "offsetof(struct ibv_context, ops.post_srq_recv)",
                offset_of!(Context, ops) + offset_of!(ContextOps, post_srq_recv),
            ),
            (
                "offsetof(struct ibv_context, ops.post_send)",
                offset_of!(Context, ops) + offset_of!(ContextOps, post_send),
            ),
            (
                "offsetof(struct ibv_context, ops.post_recv)",
                offset_of!(Context, ops) + offset_of!(ContextOps, post_recv),
            ),
            ("sizeof(struct ibv_context_ops)", size_of::<ContextOps>()),
            ("offsetof(struct ibv_device, name)", offset_of!(Device, name)),
            ("offsetof(struct ibv_comp_channel, fd)", offset_of!(CompChannel, fd)),
            ("offsetof(struct ibv_mr, lkey)", offset_of!(Mr, lkey)),
            ("sizeof(struct ibv_sge)", size_of::<Sge>()),
            ("sizeof(struct ibv_recv_wr)", size_of::<RecvWr>()),
            ("offsetof(struct ibv_recv_wr, num_sge)", offset_of!(RecvWr, num_sge)),
            ("sizeof(struct ibv_send_wr)", size_of::<SendWr>()),
            ("offsetof(struct ibv_send_wr, opcode)", offset_of!(SendWr, opcode)),
            ("offsetof(struct ibv_send_wr, send_flags)", offset_of!(SendWr, send_flags)),
            ("sizeof(struct ibv_wc)", size_of::<Wc>()),
            ("offsetof(struct ibv_wc, status)", offset_of!(Wc, status)),
            ("offsetof(struct ibv_wc, byte_len)", offset_of!(Wc, byte_len)),
            ("sizeof(struct ibv_qp_init_attr)", size_of::<QpInitAttr>()),
            ("offsetof(struct ibv_qp_init_attr, srq)", offset_of!(QpInitAttr, srq)),
            (
                "offsetof(struct ibv_qp_init_attr, cap.max_recv_sge)",
                offset_of!(QpInitAttr, cap) + offset_of!(QpCap, max_recv_sge),
            ),
            ("offsetof(struct ibv_qp_init_attr, qp_type)", offset_of!(QpInitAttr, qp_type)),
            ("offsetof(struct ibv_qp_init_attr, sq_sig_all)", offset_of!(QpInitAttr, sq_sig_all)),
            ("sizeof(struct ibv_srq_init_attr)", size_of::<SrqInitAttr>()),
            ("offsetof(struct ibv_srq_init_attr, attr.max_sge)", offset_of!(SrqInitAttr, max_sge)),
            ("sizeof(struct ibv_port_attr)", size_of::<PortAttr>()),
            ("offsetof(struct ibv_port_attr, active_mtu)", offset_of!(PortAttr, active_mtu)),
            ("offsetof(struct ibv_port_attr, max_msg_sz)", offset_of!(PortAttr, max_msg_sz)),
            ("sizeof(struct ibv_device_attr)", size_of::<DeviceAttr>()),
            ("offsetof(struct ibv_device_attr, max_qp_wr)", 4 * device::MAX_QP_WR),
            ("offsetof(struct ibv_device_attr, max_cqe)", 4 * device::MAX_CQE),
            ("offsetof(struct ibv_device_attr, max_srq_wr)", 4 * device::MAX_SRQ_WR),
        ]
    }

    fn connections() -> Vec<(&'static str, usize)> {
        vec![
            ("offsetof(struct rdma_event_channel, fd)", offset_of!(EventChannel, fd)),
            ("offsetof(struct rdma_cm_id, verbs)", offset_of!(CmId, verbs)),
            ("offsetof(struct rdma_cm_id, qp)", offset_of!(CmId, qp)),
            ("offsetof(struct rdma_cm_id, route.addr.addr.ibaddr.sgid)", offset_of!(CmId, sgid)),
            ("offsetof(struct rdma_cm_id, port_num)", offset_of!(CmId, port_num)),
            ("sizeof(struct rdma_conn_param)", size_of::<ConnParam>()),
            ("offsetof(struct rdma_conn_param, private_data_len)", offset_of!(ConnParam, private_data_len)),
            ("offsetof(struct rdma_conn_param, rnr_retry_count)", offset_of!(ConnParam, rnr_retry_count)),
            ("sizeof(struct rdma_cm_event)", size_of::<CmEvent>()),
            ("offsetof(struct rdma_cm_event, event)", offset_of!(CmEvent, event)),
            ("offsetof(struct rdma_cm_event, param.conn.private_data)", offset_of!(CmEvent, conn)),
        ]
    }

    fn constants() -> Vec<(&'static str, usize)> {
        vec![
            ("RDMA_PS_TCP", RDMA_PS_TCP as usize),
            ("IBV_QPT_RC", IBV_QPT_RC as usize),
            ("IBV_WR_SEND", IBV_WR_SEND as usize),
            ("IBV_SEND_SIGNALED", IBV_SEND_SIGNALED as usize),
            ("IBV_ACCESS_LOCAL_WRITE", IBV_ACCESS_LOCAL_WRITE as usize),
            ("RDMA_CM_EVENT_CONNECT_REQUEST", event::CONNECT_REQUEST as usize),
            ("RDMA_CM_EVENT_ESTABLISHED", event::ESTABLISHED as usize),
            ("RDMA_CM_EVENT_REJECTED", event::REJECTED as usize),
            ("RDMA_CM_EVENT_DISCONNECTED", event::DISCONNECTED as usize),
            ("RDMA_CM_EVENT_DEVICE_REMOVAL", event::DEVICE_REMOVAL as usize),
            ("RDMA_CM_EVENT_TIMEWAIT_EXIT", event::TIMEWAIT_EXIT as usize),
        ]
    }

    /// Compiles a C program beside ours. Without a compiler or the headers there is nothing to compare with.
    #[test]
    fn structs_are_those_of_the_headers_that_are_installed() {
        let folder = std::env::temp_dir().join(format!("longhaul-rdma-abi-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (source, program) = (folder.join("abi.c"), folder.join("abi"));
        let lines: String = ours().iter().map(|(what, _)| format!("printf(\"%zu\\n\", (size_t)({what}));\n")).collect();
        let text = format!(
            "#include <stddef.h>\n#include <stdio.h>\n#include <rdma/rdma_cma.h>\nint main(void) {{\n{lines}return 0;\n}}\n"
        );
        std::fs::write(&source, text).expect("a file");
        let has_headers = std::path::Path::new("/usr/include/rdma/rdma_cma.h").exists();
        let made = Command::new("cc").arg(&source).arg("-o").arg(&program).output();
        match made {
            Ok(made) if has_headers => assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr)),
            _ => return eprintln!("no C compiler or no headers of rdma-core here: nothing compared"),
        }
        let said = Command::new(&program).output().expect("it was just made").stdout;
        let theirs: Vec<usize> =
            String::from_utf8_lossy(&said).lines().map(|line| line.parse().expect("a number")).collect();
        assert_eq!(theirs.len(), ours().len());
        for ((what, ours), theirs) in ours().into_iter().zip(theirs) {
            assert_eq!(ours, theirs, "{what}");
        }
        let _ = std::fs::remove_dir_all(folder);
    }
}
