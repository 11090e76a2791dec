//! Writes JPEGs from given coefficients in arbitrary scans, which picture encoders do not support.
//!
//! Codes are of all lengths, and which symbol has which is drawn, so that rare ways through a decoder are not rare.

use super::{super::transform::ORDER, pictures::Draw};

pub(super) struct Component {
    pub(super) across: usize,
    pub(super) down: usize,
    /// Rows of blocks in whole units, as many as `Layout::blocks` says; coefficients as they follow each other in a scan.
    pub(super) blocks: Vec<[i16; 64]>,
}

#[derive(Clone, Debug)]
pub(super) struct Scan {
    pub(super) components: Vec<usize>,
    pub(super) band: (usize, usize),
    /// 0 for the first time.
    pub(super) high: u8,
    pub(super) low: u8,
}

pub(super) struct Picture {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) components: Vec<Component>,
    pub(super) steps: [u16; 64],
}

impl Picture {
    fn most(&self) -> (usize, usize) {
        let most = |of: fn(&Component) -> usize| self.components.iter().map(of).max().unwrap_or(1);
        (most(|component| component.across), most(|component| component.down))
    }

    /// Units of scans with several components.
    fn units(&self) -> (usize, usize) {
        let (across, down) = self.most();
        (self.width.div_ceil(8 * across), self.height.div_ceil(8 * down))
    }

    /// Blocks of a component that a scan of it alone has.
    fn own(&self, component: &Component) -> (usize, usize) {
        let (across, down) = self.most();
        let own = |side: usize, factor: usize, most: usize| (side * factor).div_ceil(most).div_ceil(8);
        (own(self.width, component.across, across), own(self.height, component.down, down))
    }

    pub(super) fn write(&self, marker: u8, scans: &[Scan], restart: usize, draw: &mut Draw) -> Vec<u8> {
        let mut bytes = vec![0xff, 0xd8];
        let steps = ORDER.iter().flat_map(|place| self.steps[usize::from(*place)].to_be_bytes());
        segment(&mut bytes, 0xdb, &[&[0x10u8][..], &steps.collect::<Vec<_>>()].concat());
        let [h, w] = [self.height, self.width].map(|side| u16::try_from(side).unwrap().to_be_bytes());
        let mut frame = vec![8, h[0], h[1], w[0], w[1], small(self.components.len())];
        for (id, component) in (1..).zip(&self.components) {
            frame.extend([id, small(component.across << 4 | component.down), 0]);
        }
        segment(&mut bytes, marker, &frame);
        if restart > 0 {
            segment(&mut bytes, 0xdd, &u16::try_from(restart).unwrap().to_be_bytes());
        }
        for scan in scans {
            let (first, others) = (Codes::draw(16, draw), Codes::draw(256, draw));
            segment(&mut bytes, 0xc4, &[&[0x01], &first.segment[..], &[0x12], &others.segment[..]].concat());
            let mut head = vec![small(scan.components.len())];
            head.extend(scan.components.iter().flat_map(|at| [small(at + 1), 0x12]));
            head.extend([small(scan.band.0), small(scan.band.1), scan.high << 4 | scan.low]);
            segment(&mut bytes, 0xda, &head);
            let data = Data { bits: Bits::default(), first, others, run: 0, pending: Vec::new(), scan };
            bytes.extend(data.write(self, restart));
        }
        bytes.extend([0xff, 0xd9]);
        bytes
    }
}

fn small(value: usize) -> u8 {
    u8::try_from(value).unwrap()
}

fn segment(bytes: &mut Vec<u8>, marker: u8, content: &[u8]) {
    bytes.extend([0xff, marker]);
    bytes.extend(u16::try_from(content.len() + 2).unwrap().to_be_bytes());
    bytes.extend(content);
}

#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    held: Vec<bool>,
}

impl Bits {
    fn put(&mut self, bits: u32, count: u32) {
        for at in (0..count).rev() {
            self.held.push(bits >> at & 1 == 1);
            if self.held.len() == 8 {
                let byte = self.held.drain(..).fold(0, |byte, bit| byte << 1 | u8::from(bit));
                self.bytes.push(byte);
                if byte == 0xff {
                    self.bytes.push(0);
                }
            }
        }
    }

    fn fill(&mut self) {
        while !self.held.is_empty() {
            self.put(1, 1);
        }
    }
}

struct Codes {
    /// Code and length of each symbol.
    codes: Vec<(u32, u32)>,
    segment: Vec<u8>,
}

impl Codes {
    fn draw(symbols: usize, draw: &mut Draw) -> Self {
        let counts: [u8; 16] = match symbols {
            16 => [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2],
            _ => [0, 1, 1, 1, 1, 1, 1, 0, 190, 0, 4, 8, 0, 0, 0, 48],
        };
        let mut order: Vec<u8> = (0..symbols).map(small).collect();
        for at in (1..symbols).rev() {
            order.swap(at, draw.below(u32::try_from(at).unwrap() + 1) as usize);
        }
        let (mut codes, mut code, mut named) = (vec![(0, 0); symbols], 0, order.iter());
        for (length, count) in (1..).zip(counts) {
            for symbol in named.by_ref().take(count.into()) {
                codes[usize::from(*symbol)] = (code, length);
                code += 1;
            }
            code <<= 1;
        }
        Self { codes, segment: [&counts[..], &order].concat() }
    }
}

struct Data<'a> {
    bits: Bits,
    first: Codes,
    others: Codes,
    /// Blocks without anything new, and the bits of their earlier coefficients.
    run: u32,
    pending: Vec<u32>,
    scan: &'a Scan,
}

impl Data<'_> {
    fn write(mut self, picture: &Picture, restart: usize) -> Vec<u8> {
        let alone = self.scan.components.len() == 1;
        let (across, down) = match self.scan.components[..] {
            [alone] => picture.own(&picture.components[alone]),
            _ => picture.units(),
        };
        let mut levels = [0; 4];
        for unit in 0..across * down {
            if restart > 0 && unit > 0 && unit % restart == 0 {
                self.end_run();
                self.bits.fill();
                self.bits.bytes.extend([0xff, 0xd0 + small((unit / restart - 1) % 8)]);
                levels = [0; 4];
            }
            for component in &self.scan.components {
                let level = &mut levels[*component];
                let component = &picture.components[*component];
                let stride = picture.units().0 * component.across;
                let (rows, columns) = if alone { (1, 1) } else { (component.down, component.across) };
                for place in 0..rows * columns {
                    let row = unit / across * rows + place / columns;
                    let column = unit % across * columns + place % columns;
                    self.block(&component.blocks[row * stride + column], level);
                }
            }
        }
        self.end_run();
        self.bits.fill();
        self.bits.bytes
    }

    fn block(&mut self, block: &[i16; 64], level: &mut i32) {
        let (from, to) = self.scan.band;
        let low = self.scan.low;
        if from == 0 {
            let value = i32::from(block[0]) >> low;
            if self.scan.high > 0 {
                self.bits.put(value.cast_unsigned() & 1, 1);
            } else {
                // Sums of differences wrap.
                let (size, bits) = sized(((value - *level) as i16).into());
                put(&mut self.bits, &self.first, size);
                self.bits.put(bits, size);
                *level = value;
            }
        }
        let rest = from.max(1)..to + 1;
        let values = rest.map(|at| i32::from(block[at].signum()) * (i32::from(block[at]).abs() >> low));
        let values: Vec<i32> = values.collect();
        match (values.is_empty(), self.scan.high) {
            (true, _) => {}
            (false, 0) => self.others(&values),
            (false, _) => self.refine_others(&values),
        }
    }

    fn others(&mut self, values: &[i32]) {
        let mut zeros = 0;
        for value in values {
            if *value == 0 {
                zeros += 1;
                continue;
            }
            self.end_run();
            while zeros > 15 {
                put(&mut self.bits, &self.others, 0xf0);
                zeros -= 16;
            }
            let (size, bits) = sized(*value);
            put(&mut self.bits, &self.others, zeros << 4 | size);
            self.bits.put(bits, size);
            zeros = 0;
        }
        if zeros > 0 {
            self.run += 1;
            // Whole blocks know no runs.
            if self.run == 0x7fff || self.scan.band == (0, 63) {
                self.end_run();
            }
        }
    }

    fn refine_others(&mut self, values: &[i32]) {
        let (mut zeros, mut earlier) = (0, Vec::new());
        let last_new = values.iter().rposition(|value| value.abs() == 1);
        for (at, value) in values.iter().enumerate() {
            if *value == 0 {
                zeros += 1;
                continue;
            }
            while zeros > 15 && last_new.is_some_and(|last| at <= last) {
                self.end_run();
                put(&mut self.bits, &self.others, 0xf0);
                self.put_all(&mut earlier);
                zeros -= 16;
            }
            if value.abs() > 1 {
                earlier.push(value.unsigned_abs() & 1);
                continue;
            }
            self.end_run();
            put(&mut self.bits, &self.others, zeros << 4 | 1);
            self.bits.put(u32::from(*value > 0), 1);
            self.put_all(&mut earlier);
            zeros = 0;
        }
        if zeros > 0 || !earlier.is_empty() {
            self.run += 1;
            self.pending.append(&mut earlier);
            if self.run == 0x7fff {
                self.end_run();
            }
        }
    }

    fn put_all(&mut self, bits: &mut Vec<u32>) {
        bits.drain(..).for_each(|bit| self.bits.put(bit, 1));
    }

    fn end_run(&mut self) {
        if self.run > 0 {
            let size = self.run.ilog2();
            put(&mut self.bits, &self.others, size << 4);
            self.bits.put(self.run & !(1 << size), size);
            self.run = 0;
            let mut pending = std::mem::take(&mut self.pending);
            self.put_all(&mut pending);
        }
    }
}

fn put(bits: &mut Bits, codes: &Codes, symbol: u32) {
    let (code, length) = codes.codes[symbol as usize];
    bits.put(code, length);
}

/// How many bits a value has, and which.
fn sized(value: i32) -> (u32, u32) {
    let size = 32 - value.unsigned_abs().leading_zeros();
    (size, (value - i32::from(value < 0)).cast_unsigned() & ((1 << size) - 1))
}
