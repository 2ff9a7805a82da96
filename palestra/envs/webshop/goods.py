"""Product kinds in the generated shop, with their categories, attributes, options and prices."""

from __future__ import annotations

from dataclasses import dataclass

from palestra.envs.webshop.product import STEP


@dataclass(frozen=True, slots=True)
class Kind:
    category: str
    path: str
    query: str  # search term
    nouns: tuple[str, ...]  # names used in titles
    uses: tuple[str, ...]
    attributes: tuple[str, ...]
    options: tuple[tuple[str, tuple[str, ...]], ...]
    prices: tuple[int, int]  # lowest and highest, in dollars


def _kind(
    category: str,
    path: str,
    query: str,
    nouns: str,
    uses: str,
    attributes: str,
    prices: tuple[int, int],
    **options: str,
) -> Kind:
    axes = tuple((name.replace("_", " "), tuple(values.split("|"))) for name, values in options.items())
    return Kind(
        category,
        path.replace(">", STEP),
        query,
        tuple(nouns.split("|")),
        tuple(uses.split("|")),
        tuple(attributes.split("|")),
        axes,
        prices,
    )


_COLORS = "black|white|navy blue|forest green|charcoal grey|burgundy|teal|mustard|lavender|coral|khaki|silver"
_WEAR = "black|white|navy|heather grey|olive|wine red|royal blue|dusty rose|camel|turquoise"
_SIZES = "x-small|small|medium|large|x-large|xx-large|3x-large"
_SHOES = "6|6.5|7|7.5|8|8.5|9|9.5|10|11|12"
_SCENTS = "unscented|lavender|citrus|eucalyptus|vanilla|rosemary mint|coconut|green tea"
_SPREADS = "twin|full|queen|king|california king"
_PACKS = "pack of 1|pack of 2|pack of 3|pack of 4|pack of 6"
_PHONES = "iphone 12|iphone 13|iphone 13 pro|iphone 14|galaxy s21|galaxy s22|pixel 6|pixel 7"

_BEAUTY = "Beauty & Personal Care"
_ELECTRONICS = "Electronics"
_FASHION = "Clothing, Shoes & Jewelry"
_HOME = "Home & Kitchen"
_FOOD = "Grocery & Gourmet Food"

KINDS: tuple[Kind, ...] = (
    _kind("beauty", f"{_BEAUTY} > Hair Care > Shampoo & Conditioner > Shampoos", "shampoo",
          "Shampoo|Daily Shampoo|Clarifying Shampoo", "fine hair|dry scalp|curly hair|coloured hair",
          "sulfate free|paraben free|tea tree|argan oil|cruelty free|color safe|anti dandruff|natural ingredients",
          (6, 38), scent=_SCENTS, size="8 fl oz|12 fl oz|16 fl oz|33.8 fl oz"),
    _kind("beauty", f"{_BEAUTY} > Skin Care > Face > Creams & Moisturizers", "face moisturizer",
          "Face Moisturizer|Facial Cream|Day Cream", "sensitive skin|oily skin|mature skin|winter months",
          "hyaluronic acid|fragrance free|oil free|broad spectrum|anti aging|cruelty free|dermatologist "
          "tested|vitamin c",
          (9, 64), size="1 ounce|1.7 ounce|3.4 ounce|5 ounce"),
    _kind("beauty", f"{_BEAUTY} > Oral Care > Toothbrushes & Accessories", "toothbrush",
          "Toothbrush|Bamboo Toothbrush|Travel Toothbrush", "sensitive gums|children|travellers|families",
          "soft bristle|bpa free|eco friendly|oral hygiene|plastic free|easy grip|replaceable head",
          (4, 29), color=_COLORS, item_package_quantity=_PACKS),
    _kind("beauty", f"{_BEAUTY} > Makeup > Lips > Lipstick", "lipstick", "Lipstick|Matte Lipstick|Lip Color",
          "evening wear|everyday wear|weddings|dry lips",
          "long lasting|highly pigmented|cruelty free|easy to apply|non drying|water resistant|shea butter",
          (5, 34), color="rosewood|cherry red|nude peach|plum|coral pink|brick|berry|mauve"),
    _kind("beauty", f"{_BEAUTY} > Tools & Accessories > Mirrors", "makeup mirror",
          "Makeup Mirror|Vanity Mirror|Travel Mirror", "bathrooms|dressing tables|travel",
          "rechargeable battery|double sided|touch control|adjustable brightness|easy to clean|foldable design",
          (14, 79), color=_COLORS, style="1x|3x|5x|10x"),
    _kind("beauty", f"{_BEAUTY} > Bath & Bathing Accessories > Soaps > Bar Soaps", "bar soap",
          "Bar Soap|Handmade Soap|Bath Soap", "dry skin|gifts|men|whole families",
          "olive oil|goat milk|palm oil free|natural ingredients|handmade|deeply moisturizing|plastic free|dead sea "
          "salt",
          (4, 26), scent=_SCENTS, item_package_quantity=_PACKS),
    _kind("beauty", f"{_BEAUTY} > Fragrance > Candles & Home Scents", "scented candle",
          "Scented Candle|Jar Candle|Soy Candle", "living rooms|bathrooms|housewarmings|long evenings",
          "soy wax|lead free|long lasting|hand poured|essential oils|cotton wick|eco friendly",
          (8, 45), scent=_SCENTS, size="4 oz|8 oz|14 oz|22 oz"),
    _kind("beauty", f"{_BEAUTY} > Hair Care > Styling Tools > Hair Dryers", "hair dryer",
          "Hair Dryer|Ionic Blow Dryer|Travel Hair Dryer", "thick hair|salons|travel|short hair",
          "dual voltage|low noise|quick drying|foldable handle|cool shot|ceramic coating|lightweight design",
          (19, 159), color=_COLORS, plug_type="us plug|uk plug|eu plug"),
    _kind("electronics", f"{_ELECTRONICS} > Headphones, Earbuds & Accessories > Earbud Headphones", "wireless earbuds",
          "Wireless Earbuds|In-Ear Headphones|Sport Earbuds", "running|commuting|phone calls|small ears",
          "noise cancelling|water resistant|fast charging|hands free|long battery life|touch control|stereo sound",
          (18, 189), color=_COLORS),
    _kind("electronics", f"{_ELECTRONICS} > Portable Audio & Video > Portable Speakers", "bluetooth speaker",
          "Bluetooth Speaker|Portable Speaker|Outdoor Speaker", "the beach|kitchens|parties|cycling",
          "water resistant|high power|stereo sound|hands free|wireless charging|dust proof|usb port|heavy bass",
          (15, 149), color=_COLORS, style="mono|stereo pair|with carry case"),
    _kind("electronics", f"{_ELECTRONICS} > Computers & Accessories > Keyboards", "mechanical keyboard",
          "Mechanical Keyboard|Compact Keyboard|Gaming Keyboard", "programming|gaming|small desks|offices",
          "hot swappable|usb port|plug and play|quiet keys|rgb lighting|aluminum alloy|programmable keys|low profile",
          (29, 199), switch_type="red switch|brown switch|blue switch|clear switch",
          layout="60 percent|75 percent|full size"),
    _kind("electronics", f"{_ELECTRONICS} > Computers & Accessories > Cables & Interconnects", "charging cable",
          "Charging Cable|Braided Cable|Data Cable", "cars|offices|travel|nightstands",
          "fast charging|gold plated|heavy duty|high speed|tangle free|data transfer|nylon braided",
          (5, 32), color=_COLORS, length="1 ft|3.3 ft|6.6 ft|10 ft", item_package_quantity=_PACKS),
    _kind("electronics", "Cell Phones & Accessories > Cases, Holsters & Sleeves > Basic Cases", "phone case",
          "Phone Case|Clear Case|Wallet Case", "clumsy hands|outdoor work|students|office days",
          "wireless charging|shock absorption|scratch resistant|slim fit|drop protection|card slots|non slip",
          (8, 44), color=_COLORS, compatible_model=_PHONES),
    _kind("electronics", f"{_ELECTRONICS} > Camera & Photo > Tripods & Monopods", "camera tripod",
          "Camera Tripod|Travel Tripod|Compact Tripod", "landscape photography|video calls|hiking|product photos",
          "quick release|carbon fiber|easy carry|heavy duty|non slip|carrying case|remote control|fluid head",
          (22, 240), color="black|grey|orange|blue", size="42 inch|55 inch|65 inch|72 inch"),
    _kind("electronics", f"{_ELECTRONICS} > Television & Video > Mounts", "tv wall mount",
          "TV Wall Mount|Tilting TV Mount|Full Motion TV Mount", "bedrooms|corner walls|meeting rooms",
          "easy install|heavy duty|high density|cable management|full motion|low profile|dual arm",
          (17, 129), size="13-27 inch|26-55 inch|42-75 inch|50-90 inch"),
    _kind("electronics", f"{_ELECTRONICS} > Power Accessories > Power Banks", "power bank",
          "Power Bank|Portable Charger|Solar Power Bank", "festivals|camping|long flights|emergencies",
          "fast charging|high capacity|solar panel|usb port|light weight|water resistant|led flashlight",
          (16, 99), color=_COLORS, capacity="5000mah|10000mah|20000mah|30000mah"),
    _kind("electronics", f"{_ELECTRONICS} > Wearable Technology > Smartwatches", "smart watch",
          "Smart Watch|Fitness Watch|Running Watch", "swimming|seniors|runners|office work",
          "heart rate monitor|water resistant|long battery life|sleep tracking|hands free|quick release|gps tracking",
          (35, 289), color=_COLORS, size="38mm|40mm|42mm|44mm"),
    _kind("fashion", f"{_FASHION} > Women > Clothing > Dresses > Casual", "casual dress",
          "Summer Dress|Casual Dress|Midi Dress", "summer days|weddings|the office|holidays",
          "machine wash|short sleeve|polyester spandex|drawstring waist|button closure|quick drying|elastic waist",
          (16, 79), color=_WEAR, size=_SIZES),
    _kind("fashion", f"{_FASHION} > Men > Clothing > Shirts > Casual Button-Down Shirts", "button down shirt",
          "Button Down Shirt|Linen Shirt|Work Shirt", "the office|summer evenings|travel|weekends",
          "long sleeve|slim fit|machine wash|wrinkle free|regular fit|chest pocket|moisture wicking|cotton spandex",
          (17, 75), color=_WEAR, size=_SIZES),
    _kind("fashion", f"{_FASHION} > Men > Shoes > Athletic > Running", "running shoes",
          "Running Shoes|Trail Running Shoes|Road Running Shoes", "marathons|gym training|muddy trails|daily walks",
          "rubber sole|arch support|non slip|memory foam|breathable mesh|lace closure|light weight|wide toe box",
          (35, 165), color=_WEAR, size=_SHOES),
    _kind("fashion", f"{_FASHION} > Women > Shoes > Boots > Ankle & Bootie", "ankle boots",
          "Ankle Boots|Chelsea Boots|Western Booties", "autumn walks|evenings out|rainy days|riding",
          "rubber sole|faux fur|side zipper|synthetic sole|non slip|block heel|water resistant|leather sole",
          (29, 189), color=_WEAR, size=_SHOES),
    _kind("fashion", f"{_FASHION} > Men > Clothing > Socks > Athletic Socks", "athletic socks",
          "Athletic Socks|Hiking Socks|Cushioned Socks", "hiking|tennis|long shifts|winter sports",
          "arch support|moisture wicking|merino wool|machine wash|seamless toe|odor resistant|quick drying",
          (8, 36), color=_WEAR, size="small|medium|large|x-large", item_package_quantity=_PACKS),
    _kind("fashion", f"{_FASHION} > Women > Clothing > Coats, Jackets & Vests > Raincoats", "rain jacket",
          "Rain Jacket|Hooded Raincoat|Packable Rain Shell", "hiking|school runs|festivals|sailing",
          "water resistant|adjustable hood|light weight|taped seams|zipper pockets|wind proof|packable design",
          (24, 139), color=_WEAR, size=_SIZES),
    _kind("fashion", f"{_FASHION} > Luggage & Travel Gear > Backpacks", "laptop backpack",
          "Laptop Backpack|Travel Backpack|School Backpack", "students|business trips|day hikes|cyclists",
          "water resistant|usb port|anti theft|padded straps|luggage strap|light weight|large capacity",
          (19, 149), color=_WEAR, size="14 inch|15.6 inch|17.3 inch"),
    _kind("fashion", f"{_FASHION} > Men > Accessories > Belts", "leather belt",
          "Leather Belt|Dress Belt|Woven Belt", "suits|jeans|gifts|work wear",
          "genuine leather|ratchet buckle|nickel free|adjustable length|scratch resistant|handmade|reversible design",
          (12, 69), color="black|dark brown|tan|cognac|navy", size="30|32|34|36|38|40|44"),
    _kind("garden", f"{_HOME} > Furniture > Living Room Furniture > Chairs", "accent chair",
          "Accent Chair|Reading Chair|Velvet Armchair", "living rooms|bedrooms|small corners|reception areas",
          "solid wood|easy assemble|high density|mid century|metal legs|button tufted|stain resistant",
          (79, 349), color=_COLORS, size="single|set of 2"),
    _kind("garden", f"{_HOME} > Furniture > Bedroom Furniture > Beds, Frames & Bases", "bed frame",
          "Bed Frame|Platform Bed|Storage Bed Frame", "guest rooms|attics|heavy sleepers|children",
          "box spring not needed|storage space|solid wood|easy assemble|heavy duty|noise free|led lights|metal slats",
          (89, 499), color="black|white|walnut|espresso|grey", size=_SPREADS),
    _kind("garden", f"{_HOME} > Bedding > Sheets & Pillowcases", "sheet set",
          "Sheet Set|Cotton Sheet Set|Bamboo Sheet Set", "hot sleepers|guest rooms|deep mattresses|gifts",
          "machine washable|super soft|wrinkle free|deep pocket|egyptian cotton|fade resistant|cooling fabric",
          (19, 129), color=_COLORS, size=_SPREADS),
    _kind("garden", f"{_HOME} > Home Décor > Rugs, Pads & Protectors", "area rug",
          "Area Rug|Shaggy Rug|Washable Rug", "living rooms|nurseries|hallways|dining rooms",
          "machine washable|non slip|stain resistant|easy clean|hand woven|pet friendly|low pile",
          (25, 289), color=_COLORS, size="2 x 3 feet|3 x 5 feet|5 x 7 feet|8 x 10 feet|9 x 12 feet"),
    _kind("garden", f"{_HOME} > Kitchen & Dining > Cookware > Skillets", "frying pan",
          "Frying Pan|Cast Iron Skillet|Nonstick Skillet", "induction hobs|campfires|eggs|family dinners",
          "dishwasher safe|pfoa free|non stick|oven safe|induction compatible|heavy gauge|stay cool handle",
          (15, 119), color="black|grey|copper|red|blue", size="8 inch|10 inch|12 inch|14 inch"),
    _kind("garden", f"{_HOME} > Kitchen & Dining > Coffee, Tea & Espresso > French Presses", "french press",
          "French Press|Coffee Press|Travel Press", "camping|offices|slow mornings|two people",
          "stainless steel|bpa free|dishwasher safe|double wall|heat resistant|easy clean|borosilicate glass",
          (14, 79), color="black|silver|copper|matte white|red", size="12 oz|20 oz|34 oz|51 oz"),
    _kind("garden", f"{_HOME} > Lighting > Lamps & Shades > Table Lamps", "table lamp",
          "Table Lamp|Bedside Lamp|Desk Lamp", "nightstands|studies|children|reading",
          "touch control|usb port|glass shade|eye protection|adjustable brightness|energy efficient|linen shade",
          (16, 119), color=_COLORS, style="warm light|cool light|color changing"),
    _kind("garden", "Patio, Lawn & Garden > Gardening & Lawn Care > Plant Containers", "plant pot",
          "Plant Pot|Hanging Planter|Ceramic Planter", "herbs|balconies|succulents|tall plants",
          "drainage hole|frost resistant|hand painted|self watering|light weight|uv resistant|recycled plastic",
          (9, 69), color=_COLORS, size="4 inch|6 inch|8 inch|12 inch", item_package_quantity=_PACKS),
    _kind("garden", f"{_HOME} > Storage & Organization > Baskets, Bins & Containers", "storage basket",
          "Storage Basket|Woven Basket|Laundry Basket", "toys|shelves|bathrooms|blankets",
          "storage space|easy clean|hand woven|foldable design|long handles|eco friendly|space saving",
          (11, 59), color=_COLORS, size="small|medium|large|set of 3"),
    _kind("garden", f"{_HOME} > Window Treatments > Curtains & Drapes", "blackout curtains",
          "Blackout Curtains|Linen Curtains|Thermal Curtains", "bedrooms|nurseries|bay windows|shift workers",
          "machine washable|energy efficient|noise reducing|thermal insulated|rod pocket|grommet top|wrinkle free",
          (15, 99), color=_COLORS, size="42 x 63 inch|52 x 84 inch|52 x 95 inch|100 x 84 inch"),
    _kind("grocery", f"{_FOOD} > Beverages > Coffee > Ground Coffee", "ground coffee",
          "Ground Coffee|Dark Roast Coffee|Breakfast Blend Coffee", "espresso|drip machines|cold brew|gifts",
          "fair trade|usda organic|low acid|single origin|small batch|kosher certified|caffeine free",
          (7, 49), flavor_name="original|hazelnut|french vanilla|mocha|cinnamon",
          size="10 ounce|12 ounce|2 pound|5 pound"),
    _kind("grocery", f"{_FOOD} > Beverages > Tea > Herbal", "herbal tea",
          "Herbal Tea|Loose Leaf Tea|Herbal Tea Bags", "bedtime|cold days|after dinner|iced tea",
          "caffeine free|usda organic|non gmo|sugar free|individually wrapped|gluten free|natural ingredients",
          (5, 36), flavor_name="chamomile|peppermint|hibiscus|ginger lemon|rooibos|fennel",
          size="16 count|20 count|48 count|100 count", item_package_quantity=_PACKS),
    _kind("grocery", f"{_FOOD} > Snack Foods > Bars > Protein Bars", "protein bar",
          "Protein Bar|Nut Bar|Breakfast Bar", "the gym|school lunches|hiking|busy mornings",
          "gluten free|low sugar|high protein|plant based|keto friendly|dairy free|soy free|non gmo",
          (9, 48), flavor_name="peanut butter|dark chocolate|salted caramel|blueberry|cookie dough",
          size="6 count|12 count|18 count|24 count"),
    _kind("grocery", f"{_FOOD} > Pantry Staples > Cooking & Baking > Oils", "olive oil",
          "Olive Oil|Extra Virgin Olive Oil|Cold Pressed Olive Oil", "salads|frying|dipping bread|gifts",
          "cold pressed|non gmo|gluten free|first harvest|kosher certified|glass bottle|single estate",
          (8, 62), size="8.5 fl oz|17 fl oz|25.4 fl oz|101 fl oz", item_package_quantity=_PACKS),
    _kind("grocery", f"{_FOOD} > Snack Foods > Dried Fruits & Raisins", "dried fruit",
          "Dried Fruit|Dried Mango|Dried Fruit Mix", "trail mix|baking|lunch boxes|breakfast bowls",
          "no added sugar|usda organic|sulfite free|resealable bag|gluten free|non gmo|high fiber",
          (6, 42), flavor_name="mango|apricot|cranberry|pineapple|tropical mix|fig",
          size="4 ounce|8 ounce|16 ounce|5 pound"),
    _kind("grocery", f"{_FOOD} > Pantry Staples > Sauces, Gravies & Marinades", "hot sauce",
          "Hot Sauce|Chili Sauce|Pepper Sauce", "tacos|wings|grilling|noodles",
          "gluten free|low sodium|vegan friendly|no artificial flavors|small batch|keto friendly|glass bottle",
          (5, 33), flavor_name="mild|medium heat|extra hot|smoked|mango habanero|garlic",
          size="5 fl oz|10 fl oz|12 fl oz", item_package_quantity=_PACKS),
    _kind("grocery", f"{_FOOD} > Pantry Staples > Pasta & Noodles", "pasta",
          "Pasta|Lentil Pasta|Whole Wheat Pasta", "quick dinners|soups|children|athletes",
          "gluten free|high protein|bronze cut|non gmo|low carb|plant based|slow dried|egg free",
          (4, 39), style="penne|fusilli|spaghetti|rigatoni|farfalle", item_package_quantity=_PACKS),
)  # fmt: skip

BRAND_STARTS = (
    "Alder", "Amber", "Ash", "Bay", "Birch", "Blue", "Briar", "Cedar", "Clear", "Coral", "Crest", "Dawn", "Elm",
    "Ember", "Fern", "Fox", "Frost", "Glen", "Gold", "Haven", "Hazel", "High", "Iron", "Juniper", "Kings", "Lark",
    "Maple", "Marl", "Moor", "North", "Oak", "Pine", "Quill", "Raven", "River", "Sable", "Stone", "Summit", "Thorn",
    "Wren",
)  # fmt: skip
BRAND_ENDS = (
    "brook", "craft", "crest", "dale", "field", "ford", "lane", "ley", "mere", "nest", "ora", "peak", "ridge", "stead",
    "vale", "wick", "wood", "works",
)  # fmt: skip
