"""Descriptions of product kinds and attributes in a customer's words, for instructions in the generated shop.

They avoid the words used in titles and features, so that searching for the instruction is not enough to find the
product.
"""

from __future__ import annotations

_KINDS = """
shampoo: something to wash my hair with
face moisturizer: something to keep the skin of my cheeks and forehead from getting dry
toothbrush: something to clean my teeth with
lipstick: makeup that colors the mouth
makeup mirror: something to see myself in while i put on cosmetics
bar soap: a solid block to wash my hands with
scented candle: something with a wick that makes the room smell nice
hair dryer: a device that blows warm air after washing my head
wireless earbuds: small headphones without wires
bluetooth speaker: a portable box to play music from my phone
mechanical keyboard: something to type on at my computer
charging cable: a cord to refill the battery of my phone
phone case: a cover for my mobile
camera tripod: a stand with three legs for taking photos
tv wall mount: a bracket to hang up my television
power bank: a portable battery for my gadgets
smart watch: a wristband that shows messages and counts my steps
casual dress: a one-piece garment for women to wear every day
button down shirt: a top with a collar that closes at the front
running shoes: footwear for jogging
ankle boots: footwear that ends just above the foot
athletic socks: something to wear inside my trainers for sport
rain jacket: a coat for wet weather
laptop backpack: a bag with two straps for my computer
leather belt: something to hold up my trousers
accent chair: a seat for the living room
bed frame: a base to put my mattress on
sheet set: linen to sleep in
area rug: a piece of carpet for the floor
frying pan: something to cook eggs in
french press: a pot with a plunger to brew my morning drink
table lamp: a light to put on my desk
plant pot: a container to grow flowers in
storage basket: something woven to keep my things tidy
blackout curtains: something to hang at the window so that it gets dark
ground coffee: a powder from roasted beans to brew
herbal tea: leaves and flowers to infuse in hot water
protein bar: a snack for athletes that fits in a pocket
olive oil: a liquid fat for dressing salads
dried fruit: sweet things from trees without their water
hot sauce: a liquid to make my food spicy
pasta: italian noodles
"""
_ATTRIBUTES = """
water resistant: cope with getting wet
gluten free: be fine for people with celiac disease
usb port: let me plug in a standard computer connector
non slip: stay in place without sliding
light weight: not be heavy
non gmo: come from crops without genetic engineering
heavy duty: withstand rough treatment
cruelty free: not be tested on animals
natural ingredients: be made from things that grow in nature
eco friendly: do no harm to the environment
touch control: react to a tap of my finger
quick drying: lose its moisture fast
fast charging: fill up in a short time
hands free: work without holding it
machine wash: survive the laundry
wrinkle free: need no ironing
machine washable: survive the laundry
easy clean: be simple to wipe down
usda organic: be grown without pesticides, with a government seal
bpa free: not contain bisphenol
plastic free: contain nothing synthetic from petroleum
long lasting: hold up for hours
adjustable brightness: let me dim it
foldable design: collapse when i do not use it
handmade: be crafted by a person
long battery life: run for days without a socket
stereo sound: have separate left and right channels
wireless charging: refill without a plug
low profile: be flat
scratch resistant: keep a smooth surface
slim fit: sit close to the body
quick release: come off in a second
high density: be tightly packed
moisture wicking: draw sweat away
rubber sole: have a grippy bottom of elastic material
arch support: hold up the middle of my foot
solid wood: be cut from real timber
easy assemble: be simple to put together
stain resistant: not take on spots
storage space: offer room to put things away
hand woven: be made on a loom by a person
dishwasher safe: not need washing in the sink
energy efficient: use little electricity
small batch: be produced in little quantities
kosher certified: follow jewish dietary law
caffeine free: not keep me awake
high protein: help to build muscle
plant based: contain nothing from animals
keto friendly: fit a diet of fat instead of starch
glass bottle: come in a clear, breakable container
sulfate free: not contain harsh foaming agents
paraben free: not contain the usual preservatives
tea tree: use extract of melaleuca
argan oil: use extract of a moroccan nut
color safe: not wash out dye
anti dandruff: fight flakes
hyaluronic acid: bind water in the skin
fragrance free: have no perfume
oil free: contain no grease
broad spectrum: block both kinds of sunlight
anti aging: smooth lines
dermatologist tested: be checked by skin doctors
vitamin c: contain ascorbate
soft bristle: be gentle on my gums
oral hygiene: help against plaque
easy grip: not slide out of my fingers
replaceable head: let me change the worn tip
highly pigmented: have a strong tone
easy to apply: be simple to put on
non drying: keep my mouth supple
shea butter: use fat of an african nut
rechargeable battery: let me refill its power
double sided: have a front and a back that i can use
easy to clean: be simple to wipe down
olive oil: use fat from a mediterranean tree
goat milk: use what a farm animal with horns gives
palm oil free: spare the rainforest
deeply moisturizing: care for very dry skin
dead sea salt: use minerals from israel
soy wax: burn fuel from beans
lead free: contain no heavy metal
hand poured: be cast by a person
essential oils: use plant aromas
cotton wick: burn with a thread of natural fiber
dual voltage: work in europe and in america
low noise: be quiet
foldable handle: have a grip that tucks away
cool shot: have a button for a cold blast
ceramic coating: have a layer of fired clay
lightweight design: not be heavy
noise cancelling: shut out the sounds around me
high power: be strong
dust proof: keep out fine dirt
heavy bass: make the low notes boom
hot swappable: let me change switches while it runs
plug and play: work at once without installing anything
quiet keys: not click loudly
rgb lighting: glow in all hues
aluminum alloy: be built from a light metal
programmable keys: let me assign functions
gold plated: have contacts that do not corrode
high speed: be quick
tangle free: not knot itself
data transfer: also sync files
nylon braided: have a fabric sleeve
shock absorption: cushion impacts
drop protection: survive a fall
card slots: have room for my credit and debit cards
carbon fiber: be built from black composite
easy carry: be simple to take along
carrying case: come with a bag of its own
remote control: trigger from a distance
fluid head: pan smoothly
easy install: be simple to fit
cable management: hide the wires
full motion: swivel and tilt
dual arm: have two supports
high capacity: hold a lot
solar panel: refill from the sun
led flashlight: double as a torch
heart rate monitor: measure my pulse
sleep tracking: record my nights
gps tracking: know where i am
short sleeve: leave my forearms bare
polyester spandex: be of stretchy synthetic cloth
drawstring waist: tie in the middle with a cord
button closure: not use a zip
elastic waist: stretch around the middle
long sleeve: cover my arms
regular fit: be neither tight nor loose
chest pocket: have a pouch at the front
cotton spandex: be of stretchy natural cloth
memory foam: mold to my shape
breathable mesh: let air through
lace closure: tie with strings
wide toe box: leave room at the front of the foot
faux fur: have fluffy imitation lining
side zipper: open along the ankle
synthetic sole: have a man-made bottom
block heel: have a chunky raise at the back
leather sole: have a bottom of animal hide
merino wool: come from sheep
seamless toe: not rub at the front
odor resistant: not start to smell
adjustable hood: have a head cover i can tighten
taped seams: have sealed stitches
zipper pockets: have pouches that close
wind proof: keep out a breeze
packable design: stuff into a small pouch
anti theft: be safe from pickpockets
padded straps: not cut into my shoulders
luggage strap: attach to a suitcase
large capacity: hold a lot
genuine leather: be of real hide
ratchet buckle: tighten without holes
nickel free: not irritate my skin with metal
adjustable length: be shortened or extended as needed
reversible design: be worn either way round
mid century: look like the 1950s
metal legs: stand on steel
button tufted: have a quilted back
box spring not needed: work without another layer under the mattress
noise free: not squeak
led lights: glow in the dark
metal slats: have steel strips across
super soft: feel very gentle
deep pocket: fit a thick mattress
egyptian cotton: be of long-staple fiber from the nile
fade resistant: not lose its color
cooling fabric: not make me sweat
pet friendly: suit a home with a dog
low pile: have short fibers
pfoa free: contain no forever chemicals
non stick: let food slide off
oven safe: withstand baking heat
induction compatible: work on a magnetic stove
heavy gauge: be thick
stay cool handle: have a grip that does not burn me
stainless steel: not rust
double wall: have two layers
heat resistant: withstand boiling water
borosilicate glass: be of laboratory crystal
glass shade: have a clear cover around the bulb
eye protection: not tire my sight
linen shade: have a cloth cover around the bulb
drainage hole: let extra water run out
frost resistant: stay outside in winter
hand painted: be decorated by an artist
self watering: look after itself while i am away
uv resistant: not bleach in the sun
recycled plastic: be made from old bottles
long handles: have big loops to hold it by
space saving: fit into a small flat
noise reducing: muffle the street
thermal insulated: keep the cold out
rod pocket: slide over a pole
grommet top: hang from rings
fair trade: pay the farmers properly
low acid: be gentle on my stomach
single origin: come from just one farm region
sugar free: contain nothing sweet
individually wrapped: have a pouch for every portion
low sugar: be only slightly sweet
dairy free: contain no milk
soy free: contain no tofu beans
cold pressed: be extracted without warming
first harvest: come from the earliest picking
single estate: come from just one grove
no added sugar: be sweet only by itself
sulfite free: contain no wine preservative
resealable bag: close again after opening
high fiber: be good for digestion
low sodium: contain little salt
vegan friendly: contain nothing from animals
no artificial flavors: taste only of real ingredients
bronze cut: have a rough surface that holds sauce
low carb: contain little starch
slow dried: have had days to lose its moisture
egg free: contain nothing from hens
"""


def _table(text: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in text.strip().splitlines())


KIND_PHRASES = _table(_KINDS)
ATTRIBUTE_PHRASES = _table(_ATTRIBUTES)  # each phrase completes the sentence "it should ..."
