//! A machine as the search sees it: cores that sit together, the NIC's place among them.
//!
//! For: placements that name groups of cores instead of numbers.
//! In and out: what the machine tells of its cores and of the NIC → domains, the NIC's first.
//! Invariants: a domain is what shares a node, a package and a last-level cache; each core is in one; first cores of physical cores come before
//! their siblings; what is not told makes fewer domains, never false ones.
//! Absent on purpose: reading it (`facts`), distances between nodes: next to the NIC's domain come the others by number.

/// More cores than Linux runs on (CONFIG_NR_CPUS_RANGE_END).
pub const CORES_MAX: u16 = 8192;

/// A core that this process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Core {
    /// The number of the core, as the kernel counts.
    pub id: u16,
    /// NUMA node.
    pub node: u16,
    /// Package.
    pub package: u16,
    /// First core of those that share the last-level cache with it.
    pub cache: u16,
    /// First core of its physical core.
    pub physical: u16,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shape {
    /// Cores, by number.
    pub cores: Vec<Core>,
    /// Node of the NIC.
    pub nic_node: Option<u16>,
    /// Cores that take its interrupts now; empty: not told.
    pub irqs: Vec<u16>,
    /// Interrupts may be moved, and somebody asked for it.
    pub movable: bool,
    /// Its number of rings can be set.
    pub rings: bool,
}

impl Shape {
    /// What a core is, if it is one of these.
    #[must_use]
    pub fn core(&self, id: u16) -> Option<&Core> {
        self.cores.iter().find(|core| core.id == id)
    }

    /// Groups of cores that sit together, the NIC's first: that of its interrupts, else one of its node.
    #[must_use]
    pub fn domains(&self) -> Vec<Vec<u16>> {
        let near = |core: &Core| match (self.irqs.first().and_then(|irq| self.core(*irq)), self.nic_node) {
            // Where interrupts can be moved, their place now is nobody's wish.
            (Some(irq), _) if !self.movable => {
                (core.node, core.package, core.cache) == (irq.node, irq.package, irq.cache)
            }
            (_, Some(node)) => core.node == node,
            _ => true,
        };
        let mut cores: Vec<&Core> = self.cores.iter().collect();
        cores.sort_by_key(|core| (!near(core), core.node, core.package, core.cache, core.id != core.physical, core.id));
        let mut out: Vec<Vec<u16>> = Vec::new();
        let mut last = None;
        for core in cores {
            let place = (core.node, core.package, core.cache);
            match out.last_mut() {
                Some(domain) if last == Some(place) => domain.push(core.id),
                _ => out.push(Vec::from([core.id])),
            }
            last = Some(place);
        }
        out
    }

    /// NUMA nodes, by number.
    #[must_use]
    pub fn nodes(&self) -> Vec<u16> {
        let mut nodes: Vec<u16> = self.cores.iter().map(|core| core.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Cores of a node: first cores of physical cores, then their siblings.
    #[must_use]
    pub fn of_node(&self, node: u16) -> Vec<u16> {
        let mut cores: Vec<&Core> = self.cores.iter().filter(|core| core.node == node).collect();
        cores.sort_by_key(|core| (core.id != core.physical, core.id));
        cores.iter().map(|core| core.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nics_domain_comes_first_and_siblings_last() {
        // Two nodes of two physical cores with two threads each, numbered as Linux does.
        let core = |id: u16| Core { id, node: id % 2, package: id % 2, cache: id % 2, physical: id % 4 };
        let mut shape = Shape { cores: (0..8).map(core).collect(), nic_node: Some(1), ..Shape::default() };
        assert_eq!(shape.domains(), vec![vec![1, 3, 5, 7], vec![0, 2, 4, 6]]);
        shape.irqs = vec![4];
        assert_eq!(shape.domains()[0], vec![0, 2, 4, 6], "where the interrupts are is where the NIC is");
        shape.movable = true;
        assert_eq!(shape.domains()[0], vec![1, 3, 5, 7]);
        assert_eq!((shape.nodes(), shape.of_node(0)), (vec![0, 1], vec![0, 2, 4, 6]));
    }
}
