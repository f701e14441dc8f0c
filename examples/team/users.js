// A few users for a first campaign, in the database `app`, as an application may have stored them.
// docker compose exec mongo mongosh app /team/users.js
const day = 24 * 3600e3, ago = (d) => new Date(Date.now() - d * day);
db.users.drop();
db.users.insertMany([
  { name: 'Zoë Müller', email: 'zoe@example.com', timezone: 'Europe/Berlin', plan: 'free', city: 'Köln', created_at: ago(400) },
  { name: 'Ada Obi', email: 'ada@example.com', timezone: 'Africa/Lagos', plan: 'free', city: 'Lagos', created_at: ago(200) },
  { name: '山田 花子', email: 'hanako@example.com', timezone: 'Asia/Tokyo', plan: 'free', city: '東京', created_at: ago(100) },
  { name: 'Sam Left', email: 'sam@example.com', timezone: 'America/New_York', plan: 'free', created_at: ago(300), unsubscribed: true },
  { name: 'No Address', email: 'nobody', plan: 'free', created_at: ago(90) },
  { name: 'Paula Pro', email: 'paula@example.com', timezone: 'America/Sao_Paulo', plan: 'pro', created_at: ago(90) },
]);
print(`${db.users.countDocuments()} users`);
