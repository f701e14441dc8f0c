package demo

// home is a place with names in its script.
type home struct {
	city, zone, locale string
	latin              string // a name for addresses in ASCII
	domain             string // a local domain, some in the local script
	given, family      []string
}

// Domains of which everybody is a customer. The names say how mail is read there; see inbox.go.
const (
	proxyDomain   = "proxied.example"  // pictures come through a caching proxy, as at Google
	privacyDomain = "privacy.example"  // pictures are fetched ahead, as by Apple
	scannerDomain = "scanning.example" // a machine looks at every mail first
)

var domains = []string{proxyDomain, proxyDomain, proxyDomain, privacyDomain, privacyDomain, scannerDomain, "post.example"}

var homes = []home{
	{"Auckland", "Pacific/Auckland", "en-NZ", "aroha", "post.example", []string{"Aroha", "Wiremu", "Mānuka"}, []string{"Ngāta", "Walker"}},
	{"Tōkyō", "Asia/Tokyo", "ja", "haruto", "郵便.example", []string{"陽翔", "さくら", "ハルト"}, []string{"佐藤", "鈴木"}},
	{"Seoul", "Asia/Seoul", "ko", "minjun", "우편.example", []string{"민준", "서연"}, []string{"김", "이"}},
	{"Shanghai", "Asia/Shanghai", "zh", "wei", "邮局.example", []string{"伟", "秀英", "子涵"}, []string{"王", "李"}},
	{"Bangkok", "Asia/Bangkok", "th", "somchai", "post.example", []string{"สมชาย", "มาลี"}, []string{"แสงทอง", "ใจดี"}},
	{"Mumbai", "Asia/Kolkata", "hi", "priya", "डाक.example", []string{"प्रिया", "अर्जुन"}, []string{"शर्मा", "पटेल"}},
	{"Kathmandu", "Asia/Kathmandu", "ne", "sita", "post.example", []string{"सीता", "राम"}, []string{"थापा", "गुरुङ"}},
	{"Tbilisi", "Asia/Tbilisi", "ka", "nino", "post.example", []string{"ნინო", "გიორგი"}, []string{"ბერიძე", "კაპანაძე"}},
	{"Tehran", "Asia/Tehran", "fa", "zahra", "post.example", []string{"زهرا", "رضا"}, []string{"احمدی", "محمدی"}},
	{"Jerusalem", "Asia/Jerusalem", "he", "noa", "post.example", []string{"נועה", "דוד"}, []string{"כהן", "לוי"}},
	{"Cairo", "Africa/Cairo", "ar", "fatima", "post.example", []string{"فاطمة", "محمد"}, []string{"حسن", "علي"}},
	{"Nairobi", "Africa/Nairobi", "sw", "wanjiru", "post.example", []string{"Wanjirũ", "Kamau"}, []string{"Mwangi", "Otieno"}},
	{"Lagos", "Africa/Lagos", "yo", "ayo", "post.example", []string{"Ayọ̀", "Chinwe"}, []string{"Adébáyò", "Okafor"}},
	{"Athens", "Europe/Athens", "el", "eleni", "post.example", []string{"Ελένη", "Γιώργος"}, []string{"Παπαδοπούλου", "Νικολάου"}},
	{"Kyiv", "Europe/Kyiv", "uk", "olena", "пошта.example", []string{"Олена", "Андрій"}, []string{"Шевченко", "Коваль"}},
	{"Berlin", "Europe/Berlin", "de", "joerg", "grüße.example", []string{"Jörg", "Zoë", "Käthe"}, []string{"Müller", "Groß"}},
	{"Dublin", "Europe/Dublin", "en-IE", "sean", "post.example", []string{"Seán", "Niamh"}, []string{"O'Neil", "Ní Bhriain"}},
	{"Reykjavík", "Atlantic/Reykjavik", "is", "bjork", "post.example", []string{"Björk", "Þór"}, []string{"Guðmundsdóttir", "Jónsson"}},
	{"São Paulo", "America/Sao_Paulo", "pt-BR", "joao", "correio.example", []string{"João", "Conceição"}, []string{"da Silva", "Gonçalves"}},
	{"New York", "America/New_York", "en-US", "grace", "post.example", []string{"Grace", "Malik"}, []string{"Johnson", "Lee"}},
	{"Mexico City", "America/Mexico_City", "es-MX", "lucia", "correo.example", []string{"Lucía", "José"}, []string{"Hernández", "Núñez"}},
	{"Los Angeles", "America/Los_Angeles", "en-US", "olivia", "post.example", []string{"Olivia", "Mateo"}, []string{"Kim", "Garcia"}},
	{"Honolulu", "Pacific/Honolulu", "haw", "leilani", "post.example", []string{"Leilani", "Kaʻiulani"}, []string{"Kealoha", "Kahananui"}},
}
